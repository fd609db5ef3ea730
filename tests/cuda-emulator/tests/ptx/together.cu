// Threads together: shared memory, barriers, shuffles, votes, atomics.
extern "C" __global__ void sums(const float *a, float *out, int count) {
    __shared__ float part[256];
    int i = threadIdx.x;
    float sum = 0;
    for (int k = i; k < count; k += blockDim.x) sum += a[k];
    part[i] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (i < half) part[i] += part[i + half];
        __syncthreads();
    }
    if (i == 0) out[blockIdx.x] = part[0];
}

extern "C" __global__ void shuffles(const int *a, int *out) {
    int i = threadIdx.x, x = a[i];
    unsigned all = 0xffffffff;
    int *row = out + i * 8;
    row[0] = __shfl_sync(all, x, 5);
    row[1] = __shfl_sync(all, x, i * 3, 8);
    row[2] = __shfl_up_sync(all, x, 3);
    row[3] = __shfl_down_sync(all, x, 2, 16);
    row[4] = __shfl_xor_sync(all, x, 9);
    row[5] = __ballot_sync(all, x & 1);
    row[6] = __any_sync(all, x > 100) * 2 + __all_sync(all, x >= 0);
    row[7] = __match_any_sync(all, x & 3);
}

// Half of the warp in each branch, which then meet again.
extern "C" __global__ void halves(const int *a, int *out) {
    int i = threadIdx.x, x = a[i];
    if (i & 1) {
        for (int step = 16; step > 1; step /= 2) x += __shfl_xor_sync(0xaaaaaaaa, x, step);
    } else {
        for (int step = 16; step > 1; step /= 2) x = max(x, __shfl_xor_sync(0x55555555, x, step));
    }
    __syncwarp();
    out[i] = x + __shfl_xor_sync(0xffffffff, x, 1);
}

extern "C" __global__ void atomics(int *ints, unsigned long long *longs, float *floats) {
    __shared__ int counts[8], highest;
    int i = threadIdx.x;
    if (i < 8) counts[i] = 0;
    if (i == 9) highest = 0;
    __syncthreads();
    atomicAdd(&counts[i & 7], i);
    atomicMax(&highest, 1000 + i);
    __syncthreads();
    if (i < 8) atomicAdd(&ints[i], counts[i]);
    atomicAdd(&longs[0], (unsigned long long)i << 30);
    atomicAdd(&floats[0], 1.0f);
    atomicMin(&ints[8], -i);
    atomicOr((unsigned *)&ints[9], 1u << (i & 31));
    atomicXor((unsigned *)&ints[10], i);
    atomicInc((unsigned *)&ints[11], 9);
    int expected = ints[12], old;
    do {
        old = expected;
        expected = atomicCAS(&ints[12], old, old + 2);
    } while (expected != old);
    atomicExch(&ints[13], 77);
    if (i == 0) ints[14] = highest;
}

extern "C" __global__ void barriers(const int *a, int *out) {
    int i = threadIdx.x, x = a[i];
    int odd = __syncthreads_count(x & 1);
    int any = __syncthreads_or(x == 40), all = __syncthreads_and(x < 1000);
    out[i] = odd * 100 + (any != 0) * 10 + (all != 0);
}

// The throughput of plain code and of shared memory.
extern "C" __global__ void product(const float *a, const float *b, float *out, int n) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= n || column >= n) return;
    float sum = 0;
    for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
    out[row * n + column] = sum;
}

extern "C" __global__ void tiled(const float *a, const float *b, float *out, int n) {
    __shared__ float left[16][16], right[16][16];
    int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * 16 + x, row = blockIdx.y * 16 + y;
    float sum = 0;
    for (int tile = 0; tile < n; tile += 16) {
        left[y][x] = a[row * n + tile + x];
        right[y][x] = b[(tile + y) * n + column];
        __syncthreads();
        for (int k = 0; k < 16; k++) sum += left[y][k] * right[k][x];
        __syncthreads();
    }
    out[row * n + column] = sum;
}
