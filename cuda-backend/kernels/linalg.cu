// Products of matrices, and the steps of optimizers that are fused with them. Each element of a product is summed from +0 in ascending
// order of the contraction index.
#include "adam.cuh"
#include "numbers.cuh"
#include "shapes.cuh"

// A block computes a tile of SIDE * REPEATS rows and columns. Each of its threads computes REPEATS * REPEATS elements, whose rows and
// columns are SIDE apart. DEPTH is the length of the part of the sums whose operands are in shared memory at a time.
#define SIDE 16
#define DEPTH 16
#define THREADS (SIDE * SIDE)
// Attribute of a kernel whose blocks compute tiles. A thread may have up to 128 registers.
#define TILES __launch_bounds__(THREADS, 2)

// An operand, as it comes to a block: its lines of `k` elements from line `first` on, in parts of DEPTH elements of each line. If `across`
// is 1, it is stored with its lines as columns.
template <unsigned REPEATS, typename T> struct Operand {
    enum : unsigned { WIDTH = SIDE * REPEATS };
    // A row longer than WIDTH keeps the threads that write neighbouring rows out of each other's banks.
    typedef T Tile[DEPTH][WIDTH + 1];

    const T *next;               // The thread's first element of the next part.
    Index step, advance;         // Distances to its next element of the same part, and to the first one of the following part.
    unsigned line, p;            // Line of the first element, counted from the first line, and its place in the line's part.
    unsigned line_step, p_step;  // How far away the thread's next element is in each direction.
    unsigned lines, left;        // Number of lines from the first one on, and of elements of a line that are still to come.

    // Lets neighbouring threads bring neighbouring elements.
    __device__ Operand(const T *matrix, unsigned all_lines, unsigned k, unsigned across, unsigned first)
        : line(across ? threadIdx.x % WIDTH : threadIdx.x / DEPTH), p(across ? threadIdx.x / WIDTH : threadIdx.x % DEPTH),
          line_step(across ? 0 : THREADS / DEPTH), p_step(across ? THREADS / WIDTH : 0), lines(all_lines - first), left(k) {
        Index line_stride = across ? 1 : k, p_stride = across ? all_lines : 1;
        next = matrix + ((Index)first + line) * line_stride + p * p_stride;
        step = line_step * line_stride + p_step * p_stride;
        advance = DEPTH * p_stride;
    }

    // Brings the next part: `tile[p][i]` becomes element p of line i, or 0 if there is none.
    __device__ void bring(Tile &tile) {
#pragma unroll
        for (unsigned i = 0; i < REPEATS; i++) {
            unsigned own_line = line + i * line_step, own_p = p + i * p_step;
            T value = 0;
            if (own_line < lines && own_p < left) value = next[i * step];
            tile[own_p][own_line] = value;
        }
        next += advance;
        left -= DEPTH;
    }
};

// Computes products, and calls `finish` with the position of each of their elements, its column and the element. The zeros after the end of
// a sum do not change it.
template <unsigned REPEATS, typename T, typename Finish>
__device__ inline void multiply(const T *a, const T *b, const Shapes &of, Index products, const Finish &finish) {
    typedef Operand<REPEATS, T> Part;
    __shared__ typename Part::Tile a_tile, b_tile;
    unsigned row = threadIdx.x / SIDE, column = threadIdx.x % SIDE;
    unsigned down = (of.m - 1) / Part::WIDTH + 1, along = (of.n - 1) / Part::WIDTH + 1;
#pragma unroll 1
    for (Index tile = blockIdx.x; tile < products * down * along; tile += gridDim.x) {
        Index product = tile;
        unsigned first_column = split(product, along) * Part::WIDTH, first_row = split(product, down) * Part::WIDTH;
        const T *own_a = a, *own_b = b;
        go_to(product, of, own_a, own_b);
        Part a_part(own_a, of.m, of.k, of.flip_a, first_row), b_part(own_b, of.n, of.k, !of.flip_b, first_column);
        T sums[REPEATS][REPEATS] = {};
#pragma unroll 1
        for (Index depth = 0; depth < of.k; depth += DEPTH) {
            a_part.bring(a_tile);
            b_part.bring(b_tile);
            __syncthreads();
#pragma unroll 4
            for (unsigned p = 0; p < DEPTH; p++) {
                T rows[REPEATS], columns[REPEATS];
#pragma unroll
                for (unsigned i = 0; i < REPEATS; i++) {
                    rows[i] = a_tile[p][row + SIDE * i];
                    columns[i] = b_tile[p][column + SIDE * i];
                }
#pragma unroll
                for (unsigned i = 0; i < REPEATS; i++)
#pragma unroll
                    for (unsigned j = 0; j < REPEATS; j++) sums[i][j] = add(sums[i][j], mul(rows[i], columns[j]));
            }
            __syncthreads();
        }
        Index own_row = (Index)first_row + row, own_column = (Index)first_column + column;
        Index start = product * of.m * of.n;
#pragma unroll
        for (unsigned i = 0; i < REPEATS; i++)
#pragma unroll
            for (unsigned j = 0; j < REPEATS; j++) {
                Index y_row = own_row + SIDE * i, y_column = own_column + SIDE * j;
                if (y_row < of.m && y_column < of.n) finish(start + y_row * of.n + y_column, y_column, sums[i][j]);
            }
    }
}

// The end of a product: adds the bias of the column, if there is a bias, and stores the sum.
template <typename T> struct Store {
    const T *bias;
    T *y;

    __device__ void operator()(Index at, Index column, T sum) const { y[at] = bias ? add(sum, bias[column]) : sum; }
};

// The end of a gradient: a step of gradient descent. `variable` and `stepped` may be the same.
template <typename T> struct Sgd {
    const T *variable;
    T rate;
    T *stepped;

    __device__ void operator()(Index at, Index, T gradient) const { stepped[at] = variable[at] - rate * gradient; }
};

// The end of a gradient: a step of Adam. The variables and their moments may be the same before and after the step.
template <typename T> struct AdamStep {
    const T *w, *m, *v;
    T *new_w, *new_m, *new_v;
    Adam<T> adam;

    __device__ void operator()(Index at, Index, T gradient) const {
        T own_w = w[at], own_m = m[at], own_v = v[at];
        adam.step(own_w, own_m, own_v, gradient);
        new_w[at] = own_w;
        new_m[at] = own_m;
        new_v[at] = own_v;
    }
};

// For each op, a kernel for large products, and one for those with few rows or columns.
#define MATMUL(dtype, T, op, REPEATS)                                                                                                      \
    extern "C" __global__ void TILES op##_##dtype(unsigned *fault, unsigned step, const T *a, const T *b, const T *bias, T *y,             \
                                                  const __grid_constant__ Shapes of, Index products) {                                     \
        GUARD;                                                                                                                             \
        multiply<REPEATS>(a, b, of, products, Store<T>{bias, y});                                                                          \
    }
#define SGD(dtype, T, op, REPEATS)                                                                                                         \
    extern "C" __global__ void TILES op##_##dtype(unsigned *fault, unsigned step, const T *variable, const T *x, const T *dy,              \
                                                  const T *learning_rate, T *stepped, const __grid_constant__ Shapes of) {                 \
        GUARD;                                                                                                                             \
        multiply<REPEATS>(x, dy, of, 1, Sgd<T>{variable, *learning_rate, stepped});                                                        \
    }
#define ADAM(dtype, T, op, REPEATS)                                                                                                        \
    extern "C" __global__ void TILES op##_##dtype(unsigned *fault, unsigned step, const T *w, const T *m, const T *v, const T *x,          \
                                                  const T *dy, const T *learning_rate, const long long *iterations, T *new_w, T *new_m,    \
                                                  T *new_v, const __grid_constant__ Shapes of, AdamAttributes by) {                        \
        GUARD;                                                                                                                             \
        __shared__ T alpha;                                                                                                                \
        if (threadIdx.x == 0) alpha = Adam<T>::corrected(*learning_rate, *iterations, by);                                                 \
        __syncthreads();                                                                                                                   \
        Adam<T> adam = {by.rate_1, by.rate_2, by.epsilon, alpha};                                                                          \
        multiply<REPEATS>(x, dy, of, 1, AdamStep<T>{w, m, v, new_w, new_m, new_v, adam});                                                  \
    }
#define BOTH_SIZES(dtype, T, KERNEL, op) KERNEL(dtype, T, op, 4) KERNEL(dtype, T, op##_small, 1)

FOR_FLOATS(BOTH_SIZES, MATMUL, matmul)
BOTH_SIZES(i32, int, MATMUL, matmul)
FOR_FLOATS(BOTH_SIZES, SGD, matmul_sgd)
FOR_FLOATS(BOTH_SIZES, ADAM, matmul_adam)
