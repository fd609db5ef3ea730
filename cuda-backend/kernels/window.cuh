// Geometry of windows that slide over images, for convolution and pooling.
#pragma once
#include "common.cuh"

// A window that slides along one axis. The host has checked that all numbers, and all positions in the padded image, are below 2^31.
struct Axis {
    unsigned input;    // Number of positions of the image.
    unsigned output;   // Number of positions of the result.
    unsigned kernel;   // Number of taps of the window.
    unsigned stride;   // Distance from one window to the next.
    unsigned dilation; // Distance from one tap to the next.
    unsigned before;   // Padding before the image.
};

__device__ inline unsigned quotient_up(unsigned value, unsigned by) { return value / by + (value % by != 0); }

// Input position of a tap of the window at `output`. It is not below `axis.input` if the tap is in the padding, before or after the image.
__device__ inline unsigned input_at(const Axis &axis, unsigned output, unsigned tap) {
    return output * axis.stride + tap * axis.dilation - axis.before;
}

// Finds the output position whose window has the tap `tap` on the input position `input`. It may be outside the result. Returns false if
// there is none, because the stride skips it.
__device__ inline bool output_at(const Axis &axis, unsigned input, unsigned tap, int &output) {
    int start = (int)(input + axis.before) - (int)(tap * axis.dilation), stride = (int)axis.stride;
    output = start / stride;
    return output * stride == start;
}

// Positions from `first` to before `end`.
struct Span {
    unsigned first, end;
};

// Output positions at which the tap `tap` is inside the image.
__device__ inline Span outputs_of(const Axis &axis, unsigned tap) {
    unsigned reach = tap * axis.dilation, end = axis.input + axis.before;
    unsigned first = axis.before > reach ? quotient_up(axis.before - reach, axis.stride) : 0;
    return {first, end > reach ? min(quotient_up(end - reach, axis.stride), axis.output) : 0};
}

// Input positions under the window at `output`, which is not dilated.
__device__ inline Span covered_by(const Axis &axis, unsigned output) {
    unsigned start = output * axis.stride;
    return {start > axis.before ? start - axis.before : 0, min(start + axis.kernel - axis.before, axis.input)};
}

// Output positions whose windows cover `input`. The windows are not dilated.
__device__ inline Span covering(const Axis &axis, unsigned input) {
    unsigned end = input + axis.before;
    return {end >= axis.kernel ? (end - axis.kernel) / axis.stride + 1 : 0, min(end / axis.stride + 1, axis.output)};
}
