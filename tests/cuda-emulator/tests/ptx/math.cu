// One kernel for each function of CUDA's mathematical library: the code that NVRTC makes of them is an emulator's hardest test.
#define ONE(name, type, suffix) \
    extern "C" __global__ void k_##name##suffix(const type *a, type *out, int count) { \
        int i = blockIdx.x * blockDim.x + threadIdx.x; \
        if (i < count) out[i] = name##suffix(a[i]); \
    }
#define TWO(name, type, suffix) \
    extern "C" __global__ void k_##name##suffix(const type *a, const type *b, type *out, int count) { \
        int i = blockIdx.x * blockDim.x + threadIdx.x; \
        if (i < count) out[i] = name##suffix(a[i], b[i]); \
    }
#define BOTH(make, name) make(name, float, f) make(name, double, )

BOTH(ONE, sin)
BOTH(ONE, cos)
BOTH(ONE, tan)
BOTH(ONE, exp)
BOTH(ONE, exp2)
BOTH(ONE, expm1)
BOTH(ONE, log)
BOTH(ONE, log2)
BOTH(ONE, log10)
BOTH(ONE, log1p)
BOTH(ONE, sqrt)
BOTH(ONE, cbrt)
BOTH(ONE, erf)
BOTH(ONE, erfc)
BOTH(ONE, tanh)
BOTH(ONE, sinh)
BOTH(ONE, cosh)
BOTH(ONE, asin)
BOTH(ONE, acos)
BOTH(ONE, atan)
BOTH(ONE, asinh)
BOTH(ONE, acosh)
BOTH(ONE, atanh)
BOTH(ONE, lgamma)
BOTH(ONE, floor)
BOTH(ONE, ceil)
BOTH(ONE, trunc)
BOTH(ONE, round)
BOTH(ONE, rint)
BOTH(TWO, pow)
BOTH(TWO, fmod)
BOTH(TWO, atan2)
BOTH(TWO, hypot)
BOTH(TWO, fmin)
BOTH(TWO, fmax)
BOTH(TWO, copysign)
