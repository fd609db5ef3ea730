// Mistakes of control. See global.cu for the parameters.

#define KERNEL(name) extern "C" __global__ void name(float *out, const float *in, unsigned n)
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

// A loop that does not end.
KERNEL(endless_loop) {
    volatile float *place = out + INDEX;
    for (unsigned i = 0; i != n + 1; i += 2) *place = i;
}
KERNEL(endless_loop_right) {
    volatile float *place = out + INDEX;
    for (unsigned i = 0; i != n; i += 2) *place = i;
}

// A thread waits for one that does not write.
KERNEL(endless_wait) {
    if (INDEX == 0) {
        while (((volatile float *)out)[1] != -1.0f) {
        }
    }
    out[INDEX] = 1;
}
KERNEL(endless_wait_right) { out[INDEX] = 1; }

// Stops the program.
KERNEL(trap) {
    if (in[INDEX] == 77.0f) __trap();
    out[INDEX] = in[INDEX];
}
KERNEL(trap_right) {
    if (in[INDEX] == -77.0f) __trap();
    out[INDEX] = in[INDEX];
}
