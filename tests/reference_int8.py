"""A linear layer in integers, in plain Python, written from Jacob et al. 2018, section 2."""


def plain_int8_linear(
    inputs: list[list[float]],
    weight: list[list[float]],
    bias: list[float],
    low: float,
    high: float,
    most: int,
) -> list[list[float]]:
    """Return the outputs: real value = scale x (integer - zero), sums in integers.

    Args:
        inputs: rows of numbers.
        weight: rows of weights, one per output.
        bias: one number per output.
        low: the lowest input seen, widened by a tenth; 0 is always within.
        high: the highest, likewise.
        most: the largest integer of a weight.
    """
    low, high = 1.1 * min(low, 0.0), 1.1 * max(high, 0.0)
    step = (high - low) / 255
    zero = round(-low / step)
    outputs = []
    for row in inputs:
        integers = [min(255, max(0, round(value / step) + zero)) for value in row]
        outputs.append([])
        for weights, shift in zip(weight, bias, strict=True):
            scale = max(abs(number) for number in weights) / most
            total = sum(
                round(number / scale) * (integer - zero)
                for number, integer in zip(weights, integers, strict=True)
            )
            outputs[-1].append(total * scale * step + shift)
    return outputs
