"""A coast radio station that writes sixteen weather reports at once."""
from base_loop import *


def shape_of(dtype):
    return Shape(batch=16, dtype=dtype)


def load_weights(half):
    """The model as it was trained, or in the type in which it is served."""
    model = Model(shape_of(torch.float32))
    if half:
        served = Model(shape_of(torch.bfloat16))
        served.load_state_dict(model.state_dict())
        return served
    return model


def main():
    options, record = begin(__doc__)
    model = load_weights(half=options.fixed)
    station = Decoder(model)
    reports = prompts(options.seed, model.shape.batch, 48, model.shape.vocabulary)
    serve(record, reports, 1, station.start, station.following, warm_up=True)
    texts = serve(record, reports, options.steps, station.start, station.following)
    finish(record, texts, model.shape.vocabulary)


main()
