// The arithmetic of Adam.
#pragma once
#include "common.cuh"

// The op's attributes.
struct AdamAttributes {
    float beta_1, beta_2, epsilon, rate_1, rate_2;
};

__device__ inline float square_root(float x) { return sqrtf(x); }
__device__ inline double square_root(double x) { return sqrt(x); }

// `beta` to the power of `count`, by squaring.
__device__ inline double power(float beta, Index count) {
    double result = 1, square = beta;
#pragma unroll 1
    for (; count > 0; count /= 2) {
        if (count & 1) result *= square;
        square *= square;
    }
    return result;
}

// What is the same for all elements of a variable.
template <typename T> struct Adam {
    T rate_1, rate_2, epsilon;
    T alpha; // The learning rate, corrected for the moments' beginning at 0.

    // `iterations` is the number of earlier steps. The number of this step is at most the largest of 32 bits.
    __device__ static T corrected(T learning_rate, long long iterations, const AdamAttributes &attributes) {
        Index count = (Index)(T)(iterations < -1 || iterations >= 0xffffffff ? 0xffffffff : (unsigned)iterations + 1);
        T first = (T)power(attributes.beta_1, count), second = (T)power(attributes.beta_2, count);
        return learning_rate * (square_root(1 - second) / (1 - first));
    }

    // Replaces an element of the variable w and of its moments m and v.
    __device__ void step(T &w, T &m, T &v, T gradient) const {
        m = m + (gradient - m) * rate_1;
        v = v + (gradient * gradient - v) * rate_2;
        w = w - m * alpha / (square_root(v) + epsilon);
    }
};
