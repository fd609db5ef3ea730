// What all kernels share: sizes, positions, the fault word.
#pragma once

// Number of an element, or of elements. Dimensions have 32 bits, numbers of elements 64.
typedef unsigned long long Index;
typedef unsigned char Bool;

// The largest rank of a tensor.
#define MAX_RANK 8

// Numbers for each axis, outermost first, such as dimensions.
struct Axes {
    unsigned of[MAX_RANK];
};

// Returns from a kernel if an earlier step has refused its data. Then no later step writes anything.
#define GUARD if (*(volatile unsigned *)fault < step) return

// Refuses the data of this step. The host finds out what was wrong.
__device__ inline void refuse(unsigned *fault, unsigned step) { atomicMin(fault, step); }

// First element of this thread, and the distance to its next one.
__device__ inline Index first_element() { return (Index)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline Index all_threads() { return (Index)gridDim.x * blockDim.x; }

// Divides `value` by `by`, and returns the remainder. The compiler divides numbers below 2^32 in 32 bits, which is many times faster.
__device__ inline unsigned split(Index &value, unsigned by) {
    Index quotient = value / by;
    unsigned rest = (unsigned)(value - quotient * by);
    value = quotient;
    return rest;
}
