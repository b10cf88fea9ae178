class emit_nvtx:
    def __init__(self, enabled=True, record_shapes=False):
        assert enabled and record_shapes

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        return None
