// Element types of floats in memory. Kernels compute with f32.
#pragma once
#include "common.cuh"

struct F32 {
    typedef float Stored;
    __device__ static float value(float stored) { return stored; }
    __device__ static float stored(float value) { return value; }
};

struct F16 {
    typedef unsigned short Stored;
    __device__ static float value(Stored stored) {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(stored));
        return value;
    }
    __device__ static Stored stored(float value) {
        Stored stored;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(stored) : "f"(value));
        return stored;
    }
};

struct Bf16 {
    typedef unsigned short Stored;
    __device__ static float value(Stored stored) { return __uint_as_float((unsigned)stored << 16); }
    // Rounds to the nearest number with 16 bits, and a tie to the even one. NaN stays NaN.
    __device__ static Stored stored(float value) {
        unsigned bits = __float_as_uint(value);
        return value == value ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : bits >> 16 | 0x40;
    }
};

// Stamps what STAMP defines for these types.
#define FOR_FORMATS(STAMP, ...) STAMP(f32, F32, ##__VA_ARGS__) STAMP(f16, F16, ##__VA_ARGS__) STAMP(bf16, Bf16, ##__VA_ARGS__)
