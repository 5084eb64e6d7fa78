"""Every bar of the suite, with where it comes from. Declared before a run, never fitted to one."""

import math
from typing import NamedTuple

FP32_EPS = 2.0**-23


class Bar(NamedTuple):
    """A limit and its reason."""

    value: float
    source: str


STEP1_LOSS = Bar(1e-5, "fp32 rounding of a mean over 512 tokens; 5e-7 seen where both sides are right")
TRAJECTORY = Bar(1e-5, "20 times the 5e-7 seen over 20 steps; rounding grows through AdamW")
GRADIENT = Bar(1e-5, "8 times the 1.3e-6 seen between backward kernels that are right, in fp32")
SWITCHED_GRADIENT = Bar(5e-5, "13 times the 3.9e-6 seen within ten steps, where the weights already differ by rounding")
UPDATE = Bar(
    5e-3,
    "AdamW's first step divides a gradient by its own size, so that rounding shows where it is near zero; "
    "20 times the 2.6e-4 seen",
)
STOCK_EXPERTS = Bar(
    2e-3, "bfloat16 rounds three products of each expert to 2^-9; averages out over 512 tokens, 7e-5 seen"
)
STOCK_EXPERTS_GRADIENT = Bar(3e-2, "5 times the 5.8e-3 seen: bfloat16 rounds every product of an expert to 2^-9")
MIXED_LOSS = Bar(5e-3, "4 times the 1.3e-3 seen on long rows: bfloat16 rounds every product to 2^-9")
MIXED_GRADIENT = Bar(0.15, "4 times the 3.4e-2 seen at the router, where bfloat16 flips near-ties; 2.3e-2 elsewhere")
MIXED_LONG_GRADIENT = Bar(
    4e-2, "3 times the 1.4e-2 seen, a norm over thousands of roundings that hardly varies; rounded angles give 5.5e-2"
)
MIXED_TRAJECTORY = Bar(2e-2, "not measured on hardware yet: four times MIXED_LOSS, for five steps in bfloat16")
MIXED_NORM = Bar(2e-2, "not measured on hardware yet: five bfloat16 roundings, which a norm averages")
MASTERS = Bar(0.99, "an fp32 value ends in 16 zero bits once in 65,536; rounded masters give 0")
OUTPUT_DEPARTS = Bar(2e-6, "11 times the 1.8e-7 seen between modules that are right, on any path, in fp32")
GRADIENT_DEPARTS = Bar(1e-5, "11 times the 8.9e-7 seen between gradients that are right, at the q norm of layer 0")
LEARNING_RANDOM = Bar(0.3, "0.45 to 2.2 seen within 20 steps, and batches differ by 0.1")
LEARNING_PUBLISHED = Bar(0.2, "half of the smallest fall seen, 0.43; without an update it is zero")
FORMULA = Bar(5e-6, "7 times the 7.2e-7 seen between fp32 modules that are right and the formula in fp64")
ANGLE = Bar(
    2.0,
    "fp32 rounds a frequency and its product with the position to 2^-24 each, so an angle is known to about "
    "2^-23 of itself; 1.04 times that seen",
)
THETA = Bar(1e-6, "8 ulp of fp32; a fitted base has the error of one sine and one cosine, 1e-7 seen")
LEAK = Bar(1e-6, "0 seen: what is masked has the weight 0; room for sums in another order on a device")
SEES = Bar(5e-5, "a ninth of the smallest seen, 4.5e-4, at a random start of the Transformers path's experts")
DEVIATION = Bar(5.0, "5 standard errors of a standard deviation, 1/sqrt(2n); 3.6 seen among 96 matrices")
CORRELATION = Bar(6.0, "6 standard errors of a correlation, 1/sqrt(n); 3.5 seen among 2,000 pairs, equal ones have 30")
EXACT = Bar(1e-12, "the same formula in fp64")
HEADER_SIZE = Bar(25_000_000, "the limit of the strictest reader known")
FULL_SIZE_START = Bar(0.1, "3.5 standard errors: logits have deviation sigma sqrt(D) = 0.64, 512 tokens")


KERNEL_FACTOR = 2.0
"""How many times plain torch's error, in the same dtype and against fp64, a kernel may have over a whole tensor."""
KERNEL_CAP = 4.0
"""The same for its single worst element."""
KERNEL_FLOOR_ULPS = 1.0
"""Errors up to here are rounding of the result, whatever plain torch's are."""
CONDITION_ULPS = 256.0
"""From this error of plain torch's own on, inputs are ill-conditioned and nothing is judged: fp32 could hide another
dtype below the bar. 10 seen in fp32, of the largest element, and 5 of the norm."""
CONDITION_SHARE = 0.05
"""The same as a share of the tensor, for dtypes of few bits: the bars would pass another formula. 0.009 seen in
bfloat16, of the largest element, and 0.0043 of the norm."""


def logits(largest: float) -> Bar:
    """For the largest difference between two sets of logits whose largest value is ``largest``."""
    return Bar(
        64 * FP32_EPS * largest,
        f"64 fp32 ulp at the largest logit, {largest:.3g}; kernels order their sums differently",
    )


def random_start(sigma: float, hidden_size: int, pairs: int) -> Bar:
    """For the distance of a random start from its prediction, over ``pairs`` distinct (input, label) pairs."""
    return Bar(
        4 * sigma * math.sqrt(hidden_size / pairs),
        f"4 standard errors: a label's logit has deviation sigma sqrt(D), {pairs} distinct (input, label) pairs",
    )


def far_from_random(vocab_size: int) -> Bar:
    """For the loss of published weights."""
    return Bar(math.log(vocab_size) / 2, "half of ln V, which the published weights were trained to beat")
