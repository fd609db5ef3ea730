// Branches, loops, calls, local arrays, variables of the module.
__device__ int table[4] = {10, 20, 30, 40};
__constant__ float weights[3] = {0.5f, 1.5f, 2.5f};
__device__ const float *pointers[2] = {weights, weights + 1};

// Collatz: every lane leaves the loop at another time.
extern "C" __global__ void collatz(const int *a, int *out, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    long long n = a[i];
    int steps = 0;
    while (n != 1) {
        n = n & 1 ? 3 * n + 1 : n / 2;
        steps++;
    }
    out[i] = steps;
}

__device__ __noinline__ float inner(float a, float b) { return a > b ? a - b : a * b; }
__device__ __noinline__ float outer(float a, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += inner(a, (float)i);
    return sum;
}
struct Pair {
    float low, high;
    int count;
};
__device__ __noinline__ Pair ordered(float a, float b) {
    Pair pair;
    pair.low = a < b ? a : b;
    pair.high = a < b ? b : a;
    pair.count = a < b;
    return pair;
}

extern "C" __global__ void calls(const float *a, float *out) {
    int i = threadIdx.x;
    float x = a[i], result;
    if (i % 3 == 0) result = outer(x, i);
    else if (i % 3 == 1) result = inner(x, 2.0f);
    else {
        Pair pair = ordered(x, 1.0f);
        result = pair.high * 10.0f + pair.low + pair.count;
    }
    out[i] = result;
}

__device__ __noinline__ long long mixed(signed char a, unsigned short b, bool c, long long d) { return a * 1000 + b + (c ? d : -d); }
extern "C" __global__ void narrow_arguments(const int *a, long long *out) {
    int i = threadIdx.x;
    out[i] = mixed(a[i], a[i] * 3, a[i] & 1, a[i] * 5000000000ll);
}

extern "C" __global__ void locals(const int *a, int *out, int n) {
    int i = threadIdx.x;
    int histogram[8];
    for (int k = 0; k < 8; k++) histogram[k] = 0;
    for (int k = 0; k < n; k++) histogram[(a[k] + i) & 7]++;
    int sum = 0;
#pragma unroll 1
    for (int k = 0; k < 8; k++) sum = sum * 3 + histogram[(k * 5 + i) & 7];
    out[i] = sum;
}

extern "C" __global__ void switches(const int *a, int *out) {
    int i = threadIdx.x, x = a[i];
    switch (x) {
    case 0: out[i] = x + 7; break;
    case 1: out[i] = x * 5; break;
    case 2: out[i] = table[i & 3]; break;
    case 3: out[i] = -x; break;
    case 4: out[i] = x << 4; // and on
    case 5: out[i] += 3; break;
    case 6: out[i] = 66; break;
    default: out[i] = 99;
    }
}

extern "C" __global__ void variables(float *out) {
    int i = threadIdx.x;
    out[i] = table[i & 3] * weights[i % 3] + *pointers[i & 1];
    if (i == 0) table[1] = 21;
}

struct Words {
    unsigned at[6];
};
extern "C" __global__ void structs(Words words, unsigned char shift, double scale, double *out) {
    int i = threadIdx.x;
    out[i] = (words.at[i % 6] >> shift) * scale;
}

extern "C" __global__ void pointers_of_all_kinds(int *out) {
    __shared__ int shared[32];
    int local[2];
    int i = threadIdx.x;
    shared[i] = i;
    local[0] = 100 + i;
    local[1] = 200;
    int *p = i % 3 == 0 ? shared + i : i % 3 == 1 ? local : out + i;
    *p += 1000;
    out[i] = i % 3 == 0 ? shared[i] : i % 3 == 1 ? local[0] + local[1] : out[i];
}
