// Functions that compute one element. The kernels that call them are written when they are needed: see `src/lower/elementwise/`.
//
// A function has the name of its op and of the element type of its first operand. It takes i8, i16 and i32 as `int`, u8, bool and the bits of
// f16 and bf16 as `unsigned`. Operands of 8 and 16 bits are in the range of their type, and so is the result.
#include "common.cuh"

#define FUNCTION extern "C" __device__

// Divides numbers of elements. The compiler adds a faster division for numbers of 32 bits.
FUNCTION Index quotient(Index value, Index by) { return value / by; }

// Stamps a function for one element type. T is the type of the operands, U the same without a sign, in which integers wrap, and N the
// type of the element in memory.
#define F32(STAMP, op, ...) STAMP(op, f32, float, float, float, __VA_ARGS__)
#define F64(STAMP, op, ...) STAMP(op, f64, double, double, double, __VA_ARGS__)
#define F16(STAMP, op, ...) STAMP(op, f16, unsigned, unsigned, unsigned short, __VA_ARGS__)
#define BF16(STAMP, op, ...) STAMP(op, bf16, unsigned, unsigned, unsigned short, __VA_ARGS__)
#define I8(STAMP, op, ...) STAMP(op, i8, int, unsigned, signed char, __VA_ARGS__)
#define I16(STAMP, op, ...) STAMP(op, i16, int, unsigned, short, __VA_ARGS__)
#define U8(STAMP, op, ...) STAMP(op, u8, unsigned, unsigned, unsigned char, __VA_ARGS__)
#define I32(STAMP, op, ...) STAMP(op, i32, int, unsigned, int, __VA_ARGS__)
#define I64(STAMP, op, ...) STAMP(op, i64, long long, unsigned long long, long long, __VA_ARGS__)
#define BOOL(STAMP, op, ...) STAMP(op, bool, unsigned, unsigned, unsigned char, __VA_ARGS__)

// Stamps functions for several element types.
#define FLOATS(...) F32(__VA_ARGS__) F64(__VA_ARGS__)
#define SIGNED(...) I8(__VA_ARGS__) I16(__VA_ARGS__) I32(__VA_ARGS__) I64(__VA_ARGS__)
#define INTEGERS(...) SIGNED(__VA_ARGS__) U8(__VA_ARGS__)
#define NUMBERS(...) FLOATS(__VA_ARGS__) INTEGERS(__VA_ARGS__)
#define ALL(...) NUMBERS(__VA_ARGS__) F16(__VA_ARGS__) BF16(__VA_ARGS__) BOOL(__VA_ARGS__)

// What is stamped: functions of one to three operands, a comparison, and a function that refuses some operands.
#define UNARY(op, dtype, T_, U_, N, ...) \
    FUNCTION T_ op##_##dtype(T_ x) { typedef T_ T; typedef U_ U; return (N)(__VA_ARGS__); }
#define BINARY(op, dtype, T_, U_, N, ...) \
    FUNCTION T_ op##_##dtype(T_ a, T_ b) { typedef T_ T; typedef U_ U; return (N)(__VA_ARGS__); }
#define TERNARY(op, dtype, T, U, N, ...) FUNCTION T op##_##dtype(T a, T b, T c) { return __VA_ARGS__; }
#define CHOICE(op, dtype, T, U, N, ...) FUNCTION T op##_##dtype(T x, T z, unsigned condition) { return __VA_ARGS__; }
#define COMPARISON(op, dtype, T, U, N, ...) FUNCTION unsigned op##_##dtype(T a, T b) { return __VA_ARGS__; }
#define CHECKED(op, dtype, T_, U_, N, refused, ...) \
    FUNCTION T_ op##_##dtype(T_ a, T_ b, unsigned *fault, unsigned step) { \
        typedef T_ T; \
        typedef U_ U; \
        if (refused) { \
            refuse(fault, step); \
            return 0; \
        } \
        return (N)(__VA_ARGS__); \
    }

// Movement.
ALL(UNARY, identity, x)
ALL(CHOICE, select, condition ? x : z)

// Arithmetic.
FLOATS(BINARY, add, a + b)
FLOATS(BINARY, sub, a - b)
FLOATS(BINARY, mul, a * b)
FLOATS(BINARY, div, a / b)
FLOATS(BINARY, divide_no_nan, b == 0 ? 0 : a / b)
FLOATS(BINARY, multiply_no_nan, b == 0 ? 0 : a * b)
FLOATS(UNARY, neg, -x)
FLOATS(UNARY, abs, fabs(x))
FLOATS(TERNARY, sgd_step, a - c * b)
INTEGERS(BINARY, add, (U)a + (U)b)
INTEGERS(BINARY, sub, (U)a - (U)b)
INTEGERS(BINARY, mul, (U)a * (U)b)
SIGNED(UNARY, neg, 0 - (U)x)
SIGNED(UNARY, abs, x < 0 ? 0 - (U)x : (U)x)

// Comparisons, which are false if an operand is NaN, and choices, which return NaN then. `sign` and `relu` keep NaN, `relu_grad` is 0.
NUMBERS(COMPARISON, equal, a == b)
NUMBERS(COMPARISON, not_equal, a != b)
NUMBERS(COMPARISON, less, a < b)
NUMBERS(COMPARISON, less_equal, a <= b)
NUMBERS(BINARY, maximum, a <= b ? b : b < a ? a : a + b)
NUMBERS(BINARY, minimum, a >= b ? b : b > a ? a : a + b)
FLOATS(UNARY, sign, x < 0 ? -1 : x > 0 ? 1 : x == 0 ? 0 : x)
SIGNED(UNARY, sign, x < 0 ? -1 : x > 0)
FLOATS(UNARY, relu, x <= 0 ? 0 : x)
FLOATS(BINARY, relu_grad, b > 0 ? a : 0)

// Logic. Any byte but 0 is true.
BOOL(COMPARISON, equal, !a == !b)
BOOL(COMPARISON, not_equal, !a != !b)
BOOL(COMPARISON, logical_and, a && b)
BOOL(COMPARISON, logical_or, a || b)
BOOL(COMPARISON, logical_xor, !a != !b)
BOOL(UNARY, logical_not, !x)

// Rounding, roots and transcendental functions.
FLOATS(UNARY, floor, floor(x))
FLOATS(UNARY, ceil, ceil(x))
FLOATS(UNARY, round, rint(x))
FLOATS(UNARY, sqrt, sqrt(x))
FLOATS(UNARY, rsqrt, 1 / sqrt(x))
FLOATS(UNARY, exp, exp(x))
FLOATS(UNARY, expm1, expm1(x))
FLOATS(UNARY, log, log(x))
FLOATS(UNARY, log1p, log1p(x))
FLOATS(UNARY, sin, sin(x))
FLOATS(UNARY, cos, cos(x))
FLOATS(UNARY, tanh, tanh(x))
FLOATS(UNARY, erf, erf(x))
FLOATS(UNARY, sigmoid, 1 / (1 + exp(-x)))
FLOATS(UNARY, softplus, (x < 0 ? 0 : x) + log1p(exp(-fabs(x))))
FLOATS(BINARY, pow, pow(a, b))

// The quotient of integers, rounded toward zero. That of the least integer and -1 wraps.
template <class T, class U> __device__ T divided(T a, T b) {
    bool negates = (T)-1 < 0 && b == (T)-1;
    T quotient = a / (negates ? 1 : b);
    return negates ? 0 - (U)a : quotient;
}

// The remainder of this quotient.
template <class T, class U> __device__ T rest(T a, T b) { return (U)a - (U)divided<T, U>(a, b) * (U)b; }

// True if a remainder is not 0 and its sign differs from the divisor's.
template <class T> __device__ bool signs_differ(T remainder, T b) { return remainder != 0 && (remainder < 0) != (b < 0); }

// The remainder with the sign of the divisor.
template <class T> __device__ T floored(T remainder, T b) { return signs_differ(remainder, b) ? remainder + b : remainder; }

// A power of an integer by repeated squaring. The exponent is at least 0.
template <class T, class U> __device__ T power(T base, T exponent) {
    U power = 1, square = base;
    for (; exponent; exponent >>= 1, square *= square) power = exponent & 1 ? power * square : power;
    return power;
}

// Division, and powers of integers.
FLOATS(BINARY, floordiv, floor(a / b))
FLOATS(BINARY, truncatediv, trunc(a / b))
FLOATS(BINARY, floormod, floored(fmod(a, b), b))
FLOATS(BINARY, truncatemod, fmod(a, b))
INTEGERS(CHECKED, floordiv, b == 0, (U)divided<T, U>(a, b) - signs_differ(rest<T, U>(a, b), b))
INTEGERS(CHECKED, truncatediv, b == 0, divided<T, U>(a, b))
INTEGERS(CHECKED, floormod, b == 0, floored(rest<T, U>(a, b), b))
INTEGERS(CHECKED, truncatemod, b == 0, rest<T, U>(a, b))
SIGNED(CHECKED, pow, b < 0, power<T, U>(a, b))

// The values of elements, in one of the four types that conversions start from.
__device__ float value_f32(float x) { return x; }
__device__ double value_f64(double x) { return x; }
__device__ float value_f16(unsigned bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((unsigned short)bits));
    return x;
}
__device__ float value_bf16(unsigned bits) { return __uint_as_float(bits << 16); }
__device__ int value_i8(int x) { return x; }
__device__ int value_i16(int x) { return x; }
__device__ int value_u8(unsigned x) { return x; }
__device__ int value_i32(int x) { return x; }
__device__ long long value_i64(long long x) { return x; }
__device__ int value_bool(unsigned x) { return x != 0; }

// Truncates a float to an integer. NaN, and values out of range, become the least integer.
template <class T> __device__ int truncated(T x) { return x >= (T)-0x1p31 && x < (T)0x1p31 ? (int)x : (int)0x80000000; }
template <class T> __device__ long long truncated_long(T x) { return x >= (T)-0x1p63 && x < (T)0x1p63 ? (long long)x : (long long)(1ull << 63); }

// Conversions of a value to an element type. Those that are missing here go through one that is there.
template <class V> __device__ float to_f32(V x) { return x; }
template <class V> __device__ double to_f64(V x) { return x; }
template <class V> __device__ int to_i32(V x) { return x; }
__device__ int to_i32(float x) { return truncated(x); }
__device__ int to_i32(double x) { return truncated(x); }
template <class V> __device__ long long to_i64(V x) { return x; }
__device__ long long to_i64(float x) { return truncated_long(x); }
__device__ long long to_i64(double x) { return truncated_long(x); }
template <class V> __device__ int to_i8(V x) { return (signed char)to_i32(x); }
template <class V> __device__ int to_i16(V x) { return (short)to_i32(x); }
template <class V> __device__ unsigned to_u8(V x) { return (unsigned char)to_i32(x); }
template <class V> __device__ unsigned to_bool(V x) { return x != 0; }
template <class V> __device__ unsigned to_f16(V x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(to_f32(x)));
    return bits;
}
// Rounds to the nearest number with 16 bits, and a tie to the even one. NaN stays NaN.
template <class V> __device__ unsigned to_bf16(V value) {
    float x = to_f32(value);
    unsigned bits = __float_as_uint(x);
    return x == x ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : bits >> 16 | 0x40;
}

// Casts.
#define CAST(to, from, T, U, N, R) FUNCTION R cast_##from##_##to(T x) { return to_##to(value_##from(x)); }
ALL(CAST, f32, float)
ALL(CAST, f64, double)
ALL(CAST, f16, unsigned)
ALL(CAST, bf16, unsigned)
ALL(CAST, i8, int)
ALL(CAST, i16, int)
ALL(CAST, u8, unsigned)
ALL(CAST, i32, int)
ALL(CAST, i64, long long)
ALL(CAST, bool, unsigned)
