// Convolutions of f32 images [n,h,w,c] and their gradients as products of matrices, without tensor cores. See tiles.cuh. The matrix whose
// rows are the windows is never in memory: the threads compute where its elements are in the images.
#include "tiles.cuh"

// The windows of a convolution, and the other operands of its product. Offsets are numbers of elements below 2^31.
//
// The windows are those of `rows` x `columns` pixels of each image. A window has the elements (tap down, tap across, channel). Those of
// taps outside of the images are 0.
struct Windows {
    unsigned rows, columns;
    int start, image_step, row_step, column_step;              // Offset of the first window, and steps of the offset.
    int row_start, column_start, row_move, column_move;        // Position of the first window, and its moves.
    unsigned taps_across, channels, length;                    // The length is the number of elements of a window.
    int tap_down_step, tap_across_step, tap_down_move, tap_across_move;
    unsigned height, width;                                    // Size of the images.
    unsigned along;                                            // 1 if the filter's elements for one column are stored along the window.
    int filter_start, filter_down_step, filter_across_step;    // Offset of the first tap, and steps, if they are.
    int y_start, y_image_step, y_row_step, y_column_step;      // Where the pixels of the result are.
    unsigned m;                                                // Number of windows in all images.
};

// Offset in the images, and position in the image.
struct Place {
    int offset, h, w;

    __device__ inline Place operator+(const Place &other) const { return {offset + other.offset, h + other.h, w + other.w}; }
    __device__ inline bool is_in(const Windows &of) const { return (unsigned)h < of.height && (unsigned)w < of.width; }
};

// An element of the windows.
struct Element {
    unsigned down, across, channel;

    __device__ inline Element(const Windows &of, unsigned number) {
        unsigned tap = number / of.channels;
        channel = number % of.channels;
        down = tap / of.taps_across;
        across = tap % of.taps_across;
    }

    __device__ inline void advance(const Windows &of, unsigned by) {
        channel += by;
        while (channel >= of.channels) {
            channel -= of.channels;
            if (++across == of.taps_across) {
                across = 0;
                down++;
            }
        }
    }

    __device__ inline Place place(const Windows &of) const {
        return {(int)down * of.tap_down_step + (int)across * of.tap_across_step + (int)channel, (int)down * of.tap_down_move,
                (int)across * of.tap_across_move};
    }

    __device__ inline int in_filter(const Windows &of) const {
        return of.filter_start + (int)down * of.filter_down_step + (int)across * of.filter_across_step + (int)channel;
    }
};

// A window.
struct Pixel {
    unsigned image, row, column;

    __device__ inline Pixel(const Windows &of, unsigned number) {
        unsigned line = number / of.columns;
        column = number % of.columns;
        image = line / of.rows;
        row = line % of.rows;
    }

    __device__ inline void advance(const Windows &of, unsigned by) {
        column += by;
        while (column >= of.columns) {
            column -= of.columns;
            if (++row == of.rows) {
                row = 0;
                image++;
            }
        }
    }

    __device__ inline Place place(const Windows &of) const {
        return {of.start + (int)image * of.image_step + (int)row * of.row_step + (int)column * of.column_step,
                of.row_start + (int)row * of.row_move, of.column_start + (int)column * of.column_move};
    }
};

// Returns the quad whose element `i` is at place(i), if it exists and is in the images. If `whole`, the four are neighbours.
template <typename At>
__device__ inline float4 gather(const float *images, const Windows &of, int count, bool whole, const At &place) {
    if (whole) {
        Place first = place(0);
        return quad_at(images + first.offset, first.is_in(of) ? count : 0, true);
    }
    float quad[QUAD];
#pragma unroll
    for (int i = 0; i < QUAD; i++) {
        Place own = place(i);
        quad[i] = 0;
        if (i < count && own.is_in(of)) quad[i] = __ldg(images + own.offset);
    }
    return make_float4(quad[0], quad[1], quad[2], quad[3]);
}

// The windows as the lines of an operand.
template <unsigned LINES, unsigned DEPTH, unsigned THREADS> struct WindowLines {
    typedef Places<LINES, DEPTH, THREADS> Own;
    static_assert(DEPTH == 8, "all quads of a thread have the same elements");

    Own places;
    const Windows &of;
    const float *images;
    Place windows[Own::EACH];
    Element element; // The first element of the thread's quads.
    int lines, left; // Numbers of windows, and of elements, from the first quad on.

    __device__ inline WindowLines(const float *images, const Windows &of, unsigned first, unsigned from, unsigned end)
        : places{true}, of(of), images(images), element(of, from + places.p()) {
        unsigned line = first + places.line();
        lines = places.is_active() ? (int)(of.m - line) : 0;
        left = (int)(end - from) - (int)places.p();
#pragma unroll
        for (unsigned i = 0; i < Own::EACH; i++) windows[i] = Pixel(of, line + i * places.line_step()).place(of);
    }

    __device__ inline void fetch(float4 (&quads)[Own::EACH]) const {
        bool whole = of.channels % QUAD == 0;
#pragma unroll
        for (unsigned i = 0; i < Own::EACH; i++) {
            int count = lines > (int)(i * places.line_step()) ? left : 0;
            Element own = element;
            unsigned at = 0;
            quads[i] = gather(images, of, count, whole, [&](unsigned index) {
                if (index > at) own.advance(of, index - at);
                at = index;
                return windows[i] + own.place(of);
            });
        }
    }

    __device__ inline void advance() {
        element.advance(of, DEPTH);
        left -= DEPTH;
    }
};

// The filter: its columns are the lines of an operand. They have the elements of `windows`.
template <unsigned LINES, unsigned DEPTH, unsigned THREADS, typename W> struct FilterLines {
    typedef Places<LINES, DEPTH, THREADS> Own;
    static_assert(Own::EACH == 1 && DEPTH == 8, "the quads of a thread have the elements of those of the windows");

    Own places;
    const Windows &of;
    const Element &element;
    const float *next; // The thread's next quad, or, if the filter is stored along the windows, the beginning of its line.
    unsigned n;
    int lines, left;

    __device__ inline FilterLines(const float *filter, const W &windows, unsigned n, unsigned first, unsigned from, unsigned end)
        : places{windows.of.along != 0}, of(windows.of), element(windows.element), n(n) {
        unsigned line = first + places.line();
        lines = places.is_active() ? (int)(n - line) : 0;
        left = (int)(end - from) - (int)places.p();
        next = filter + (places.along ? (Index)line * of.channels : (Index)(from + places.p()) * n + line);
    }

    __device__ inline void fetch(float4 (&quads)[1]) const {
        bool exists = lines > 0 && left > 0;
        if (!places.along) {
            quads[0] = quad_at(next, exists ? lines : 0, n % QUAD == 0);
        } else if (of.channels % QUAD == 0) {
            quads[0] = quad_at(next + element.in_filter(of), exists ? left : 0, true);
        } else {
            float quad[QUAD];
            Element own = element;
#pragma unroll
            for (int i = 0; i < QUAD; i++) {
                quad[i] = 0;
                if (exists && i < left) quad[i] = __ldg(next + own.in_filter(of));
                own.advance(of, 1);
            }
            quads[0] = make_float4(quad[0], quad[1], quad[2], quad[3]);
        }
    }

    __device__ inline void advance() {
        if (!places.along) next += DEPTH * n;
        left -= DEPTH;
    }
};

// The end: the bias of the column is added, if there is one. If it CLOSES, the host completes the store.
template <bool CLOSES> struct Store {
    const Windows &of;
    const float *bias;
    float *y;
    unsigned n;
    bool contiguous; // True if the rows of the product follow each other in y.

    __device__ inline Index row(unsigned row) const {
        if (contiguous) return (Index)row * n;
        Pixel pixel(of, row);
        return of.y_start + (int)pixel.image * of.y_image_step + (int)pixel.row * of.y_row_step + (int)pixel.column * of.y_column_step;
    }

    __device__ inline void store(Index at, unsigned column, float sum) const {
        if (bias) sum += bias[column];
        if (CLOSES)
            close(at, sum);
        else
            y[at] = sum;
    }
    __device__ inline void store(Index at, unsigned column, float4 sums) const {
        if (bias) {
            float4 own = *(const float4 *)(bias + column);
            sums = make_float4(sums.x + own.x, sums.y + own.y, sums.z + own.z, sums.w + own.w);
        }
        if (CLOSES)
            close(at, sums);
        else
            *(float4 *)(y + at) = sums;
    }
};

// The elements of part `part` of `parts` of sums of `k` elements.
struct Part {
    unsigned from, end;

    __device__ inline Part(unsigned part, unsigned parts, unsigned k) {
        unsigned each = ((k + parts - 1) / parts + 15) / 16 * 16;
        from = at_most(part * each, k);
        end = at_most(from + each, k);
    }
};

// One product for each kind of pixels of the result that meet the same taps: one kind if the windows are not strided.
struct Kinds {
    Windows of[4];
};

// The windows of the images, multiplied by the filter: a convolution, or the gradient of the images of one. Block (x, y, z) computes tile x
// of the product of kind y, for part z of the sums. If there are several parts, y is a workspace for the parts, of `elements` each.
template <typename T, bool CLOSES>
__device__ inline void convolve(const float *images, const float *filter, const float *bias, float *y, const Kinds &kinds, unsigned n,
                                Index elements) {
    __shared__ __align__(16) float memory[T::SHARED];
    const Windows &of = kinds.of[blockIdx.y];
    unsigned down = (of.m + T::ROWS - 1) / T::ROWS, along = (n - 1) / T::COLUMNS + 1;
    if (blockIdx.x >= down * along) return;
    Position position = position_of(blockIdx.x, down, along);
    unsigned first_row = position.row * T::ROWS, first_column = position.column * T::COLUMNS;
    Part part(blockIdx.z, gridDim.z, of.length);
    typedef WindowLines<T::ROWS, T::DEPTH, T::THREADS> Lines;
    Lines windows(images, of, first_row, part.from, part.end);
    FilterLines<T::COLUMNS, T::DEPTH, T::THREADS, Lines> columns(filter, windows, n, first_column, part.from, part.end);
    Sums<T> sums;
    multiply<T>(memory, windows, columns, part.end - part.from, sums);
    Store<CLOSES> store = {of, bias, y + blockIdx.z * elements, n, gridDim.y == 1};
    finish<T>(memory, sums, first_row, first_column, of.m, n, store);
}

// The elements of the windows as the lines of an operand, whose own elements are the windows.
template <unsigned LINES, unsigned DEPTH, unsigned THREADS> struct ElementLines {
    typedef Places<LINES, DEPTH, THREADS> Own;
    static_assert(DEPTH == 8, "a thread has quads of the same lines");

    Own places;
    const Windows &of;
    const float *images;
    Place lines[QUAD];
    Pixel pixel; // That of the thread's first quad.
    int count, left;

    __device__ inline ElementLines(const float *images, const Windows &of, unsigned first, unsigned from, unsigned end)
        : places{false}, of(of), images(images), pixel(of, from + places.p()) {
        unsigned line = first + places.line();
        count = (int)(of.length - line);
        left = (int)(end - from) - (int)places.p();
#pragma unroll
        for (unsigned i = 0; i < QUAD; i++) lines[i] = Element(of, line + i).place(of);
    }

    __device__ inline void fetch(float4 (&quads)[Own::EACH]) const {
        Pixel own = pixel;
#pragma unroll
        for (unsigned i = 0; i < Own::EACH; i++) {
            if (i > 0) own.advance(of, places.p_step());
            Place window = own.place(of);
            int inside = left > (int)(i * places.p_step()) ? count : 0;
            quads[i] = gather(images, of, inside, of.channels % QUAD == 0, [&](unsigned index) { return window + lines[index]; });
        }
    }

    __device__ inline void advance() {
        pixel.advance(of, DEPTH);
        left -= DEPTH;
    }
};

// The gradient of the filter: the elements of the windows, multiplied by dy[m,n]. Block (x, 0, z) computes tile x for part z of the sums.
template <typename T>
__device__ inline void filter_grad(const float *images, const float *dy, float *y, const Windows &of, unsigned n, Index elements) {
    __shared__ __align__(16) float memory[T::SHARED];
    unsigned down = (of.length - 1) / T::ROWS + 1, along = (n - 1) / T::COLUMNS + 1;
    Position position = position_of(blockIdx.x, down, along);
    unsigned first_row = position.row * T::ROWS, first_column = position.column * T::COLUMNS;
    Part part(blockIdx.z, gridDim.z, of.m);
    ElementLines<T::ROWS, T::DEPTH, T::THREADS> left(images, of, first_row, part.from, part.end);
    Matrix<T::COLUMNS, T::DEPTH, T::THREADS> right(dy, n, of.m, false, first_column, part.from, part.end);
    Sums<T> sums;
    multiply<T>(memory, left, right, part.end - part.from, sums);
    Store<false> store = {of, nullptr, y + blockIdx.z * elements, n, true};
    finish<T>(memory, sums, first_row, first_column, of.length, n, store);
}

#define CONVOLVE(TILE, BLOCKS, NAME, CLOSES)                                                                                               \
    extern "C" __global__ void __launch_bounds__(TILE::THREADS, BLOCKS)                                                                    \
    convolve_##NAME(unsigned *fault, unsigned step, const float *images, const float *filter, const float *bias, float *y,                 \
                          const __grid_constant__ Kinds kinds, unsigned n, Index elements) {                                               \
        GUARD;                                                                                                                             \
        convolve<TILE, CLOSES>(images, filter, bias, y, kinds, n, elements);                                                               \
    }
#define FILTER_GRAD(TILE, BLOCKS, NAME)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(TILE::THREADS, BLOCKS)                                                                    \
    filter_grad_##NAME##_f32(unsigned *fault, unsigned step, const float *images, const float *dy, float *y,                               \
                             const __grid_constant__ Windows of, unsigned n, Index elements) {                                             \
        GUARD;                                                                                                                             \
        filter_grad<TILE>(images, dy, y, of, n, elements);                                                                                 \
    }

typedef Tile<128, 128, 8, 4, 2> Large;
typedef Tile<128, 64, 8, 4, 1> Tall;
typedef Tile<128, 32, 8, 4, 1> Narrow;
typedef Tile<64, 64, 8, 2, 2> Small;

CONVOLVE(Large, 2, 128x128_f32, false)
CONVOLVE(Tall, 3, 128x64_f32, false)
CONVOLVE(Narrow, 4, 128x32_f32, false)
CONVOLVE(Large, 2, 128x128_f32_closing, true)
CONVOLVE(Tall, 3, 128x64_f32_closing, true)
CONVOLVE(Narrow, 4, 128x32_f32_closing, true)
FILTER_GRAD(Tall, 3, 128x64)
FILTER_GRAD(Small, 4, 64x64)
