"""As much of torch as the hook module of --torch touches."""
from . import autograd, cuda, nn
