import sys

switches = []  # of the names of operators, by any thread


class emit_nvtx:
    def __init__(self, enabled=True, record_shapes=False):
        assert enabled and record_shapes

    def __enter__(self):
        switches.append("entered")
        return self

    def __exit__(self, *_error):
        return None


if "old" not in sys.argv:

    class ProfilerState:
        NVTX = object()

    class _ExperimentalConfig:
        pass

    class ProfilerConfig:
        def __init__(self, state, shapes, memory, stack, flops, modules, experimental):
            assert state is ProfilerState.NVTX and shapes is True and isinstance(experimental, _ExperimentalConfig)
            assert not (memory or stack or flops or modules)

    def _enable_profiler(config, activities):
        assert isinstance(config, ProfilerConfig) and activities == set()
        switches.append("on")

    def _disable_profiler():
        switches.append("off")
