from . import nvtx
