// Arithmetic of all element types. Integers wrap.
#pragma once
#include "common.cuh"

// The type in which integers of type T wrap: C++ leaves the overflow of signed ones undefined.
template <typename T> struct Wrapping { typedef T Of; };
template <> struct Wrapping<int> { typedef unsigned Of; };
template <> struct Wrapping<long long> { typedef unsigned long long Of; };

template <typename T>
__device__ inline T add(T a, T b) {
    typedef typename Wrapping<T>::Of W;
    return (T)((W)a + (W)b);
}

template <typename T>
__device__ inline T mul(T a, T b) {
    typedef typename Wrapping<T>::Of W;
    return (T)((W)a * (W)b);
}

// The least and the greatest value: infinities, or the ends of the range of integers.
template <typename T> struct Limits;
#define LIMITS(T, LEAST, GREATEST)                                                                                                         \
    template <> struct Limits<T> {                                                                                                         \
        __device__ static T least() { return LEAST; }                                                                                      \
        __device__ static T greatest() { return GREATEST; }                                                                                \
    };
LIMITS(float, __int_as_float(0xff800000), __int_as_float(0x7f800000))
LIMITS(double, __longlong_as_double(0xfff0000000000000), __longlong_as_double(0x7ff0000000000000))
LIMITS(signed char, -128, 127)
LIMITS(unsigned char, 0, 255)
LIMITS(int, (int)0x80000000, 0x7fffffff)
LIMITS(long long, (long long)0x8000000000000000, 0x7fffffffffffffff)

// Stamps what STAMP defines for the element types.
#define FOR_FLOATS(STAMP, ...) STAMP(f32, float, ##__VA_ARGS__) STAMP(f64, double, ##__VA_ARGS__)
#define FOR_NUMBERS(STAMP, ...)                                                                                                            \
    FOR_FLOATS(STAMP, ##__VA_ARGS__)                                                                                                       \
    STAMP(i8, signed char, ##__VA_ARGS__) STAMP(u8, unsigned char, ##__VA_ARGS__)                                                          \
    STAMP(i32, int, ##__VA_ARGS__) STAMP(i64, long long, ##__VA_ARGS__)
