// A mistake in each kernel. The emulator has to name it.
extern "C" __global__ void past_the_end(int *out) { out[threadIdx.x + 1] = 1; }
extern "C" __global__ void read_past_the_end(const int *a, int *out) { out[threadIdx.x] = a[threadIdx.x + 1]; }
extern "C" __global__ void null_pointer(int *out) { *(int *)(threadIdx.x * 4ull) = 1; }
extern "C" __global__ void misaligned(char *out) { *(int *)(out + threadIdx.x) = 1; }
extern "C" __global__ void misaligned_vector(float *out) { *(float4 *)(out + threadIdx.x) = float4{1, 2, 3, 4}; }
extern "C" __global__ void shared_past_the_end(int *out, int n) {
    __shared__ int part[32];
    part[threadIdx.x + n] = 1;
    __syncthreads();
    out[threadIdx.x] = part[31 - threadIdx.x];
}
extern "C" __global__ void shared_unwritten(int *out) {
    __shared__ int part[33];
    part[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = part[threadIdx.x + 1];
}
extern "C" __global__ void missing_barrier(int *out) {
    __shared__ int part[64];
    part[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = part[63 - threadIdx.x];
}
extern "C" __global__ void late_missing_barrier(int *out) {
    __shared__ int part[64];
    part[threadIdx.x] = threadIdx.x;
    if (threadIdx.x >= 32) out[threadIdx.x] = part[63 - threadIdx.x];
}
extern "C" __global__ void missing_second_barrier(int *out) {
    __shared__ int part[64];
    for (int k = 0; k < 2; k++) {
        part[threadIdx.x] = threadIdx.x + k;
        __syncthreads();
        out[threadIdx.x + 64 * k] = part[63 - threadIdx.x];
    }
}
extern "C" __global__ void same_place(int *out) {
    __shared__ int part[2];
    part[threadIdx.x & 1] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = part[0];
}
extern "C" __global__ void bytes_of_a_word(int *out) {
    __shared__ unsigned char part[64];
    part[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = part[threadIdx.x ^ 1];
}
extern "C" __global__ void plain_beside_atomic(int *out) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, 1);
    out[threadIdx.x] = sum;
}
extern "C" __global__ void warp_without_sync(int *out) {
    __shared__ volatile int part[32];
    part[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = part[31 - threadIdx.x];
}
// No mistake: the warp synchronizes.
extern "C" __global__ void warp_with_sync(int *out) {
    __shared__ int part[32];
    part[threadIdx.x] = threadIdx.x;
    __syncwarp();
    out[threadIdx.x] = part[31 - threadIdx.x];
}
extern "C" __global__ void early_return(int *out, int n) {
    __shared__ int part[64];
    if (threadIdx.x >= n) return;
    part[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = part[0];
}
extern "C" __global__ void different_barriers(int *out) {
    if (threadIdx.x < 32) __syncthreads();
    else {
        out[threadIdx.x] = 1;
        __syncthreads();
    }
}
extern "C" __global__ void gives_up(int n) {
    if (threadIdx.x == n) __trap();
}
extern "C" __global__ void for_ever(volatile int *flag) {
    while (*flag == 0) {}
}
extern "C" __global__ void unset_variable(int *out, int n) {
    int i;
    asm volatile("{ .reg .b32 unset; mov.b32 %0, unset; }" : "=r"(i));
    if (n) out[i] = 1;
}
extern "C" __global__ void unset_value(int *out) {
    int i;
    asm volatile("{ .reg .b32 unset; add.s32 %0, unset, 1; }" : "=r"(i));
    out[threadIdx.x] = i;
}
extern "C" __global__ void unset_local(int *out, int n) {
    int local[8];
    local[n & 7] = 1;
    out[threadIdx.x] = local[(n + 1) & 7];
}
extern "C" __global__ void local_past_the_end(int *out, int n) {
    int local[8];
    for (int k = 0; k < n; k++) local[k] = k;
    out[threadIdx.x] = local[n - 1];
}
extern "C" __global__ void absent_lanes(int *out) {
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffffff, threadIdx.x, 20);
    else __syncthreads();
}
extern "C" __global__ void blocks_race(int *out) { out[threadIdx.x] = blockIdx.x; }
extern "C" __global__ void neighbours_race(int *out) { out[threadIdx.x] += out[threadIdx.x ^ 1]; }
extern "C" __global__ void in_place_race(float *a) {
    float x = a[threadIdx.x];
    a[(threadIdx.x + 1) & 63] = x;
}
// No mistakes: atomics, and a barrier between the threads of one block.
extern "C" __global__ void ordered(int *out) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    out[i] = i;
    __syncthreads();
    int x = out[i ^ 1];
    __syncthreads();
    out[i] = x;
    atomicAdd(out + 1000, 1);
}
