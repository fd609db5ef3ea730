/* Hostile calls: inputs, outputs and variables. */

#include "hostile.h"

#define X MODEL_TRAIN_INPUT_X_ELEMENTS
#define F32 GRADLET_DTYPE_F32

static const uint32_t NO_DTYPES[] = {0, 10, 255, 256 + GRADLET_DTYPE_F32, UINT32_MAX};
static const uint32_t OTHER_DTYPES[] = {GRADLET_DTYPE_F64, GRADLET_DTYPE_BF16, GRADLET_DTYPE_I8, GRADLET_DTYPE_I32, GRADLET_DTYPE_BOOL};
#define EACH(index, list) for (size_t index = 0; index < sizeof(list) / sizeof *(list); index++)

static void types(void)
{
    gradlet_type type;
    uint32_t number;
    OBJECT(gradlet_session, &session, gradlet_session_variable_count(it, &number));
    OUT(uint32_t, arena, &session, gradlet_session_variable_count(&session, out));
    OBJECT(gradlet_session, &session, gradlet_session_input_type(it, MODEL_TRAIN, 0, &type));
    OBJECT(gradlet_session, &session, gradlet_session_output_type(it, MODEL_TRAIN, 0, &type));
    OBJECT(gradlet_session, &session, gradlet_session_variable_type(it, 0, &type));
    OUT(gradlet_type, arena, &session, gradlet_session_input_type(&session, MODEL_TRAIN, 0, out));
    OUT(gradlet_type, arena + 16, &session, gradlet_session_output_type(&session, MODEL_TRAIN, 0, out));
    OUT(gradlet_type, arena + MODEL_ARENA_BYTES - 4, &session, gradlet_session_variable_type(&session, 0, out));
    EXPECT(UNKNOWN_SIGNATURE, gradlet_session_input_type(&session, 2, 0, &type));
    EXPECT(UNKNOWN_SIGNATURE, gradlet_session_output_type(&session, UINT32_MAX, 0, &type));
    EXPECT(NO_SUCH_TENSOR, gradlet_session_input_type(&session, MODEL_TRAIN, 2, &type));
    EXPECT(NO_SUCH_TENSOR, gradlet_session_output_type(&session, MODEL_TRAIN, 1, &type));
    EXPECT(NO_SUCH_TENSOR, gradlet_session_output_type(&session, MODEL_TRAIN, UINT32_MAX, &type));
    EXPECT(OK, gradlet_session_variable_count(&session, &number));
    EXPECT(NO_SUCH_TENSOR, gradlet_session_variable_type(&session, number, &type));
    EXPECT(NO_SUCH_TENSOR, gradlet_session_variable_type(&session, UINT32_MAX, &type));
    EXPECT(OK, gradlet_session_variable_type(&session, number - 1, &type));
}

/* Checks a call that sets `X` values of type f32: its arguments are `it`, `index`, `dtype`, `values` and `count`. */
#define SETS(elements, call)                                             \
    do {                                                                 \
        gradlet_session *it = &session;                                  \
        uint32_t index = 0, dtype = F32;                                 \
        size_t count = (elements);                                       \
        const void *values = memory;                                     \
        EXPECT(OK, call);                                                \
        EACH(which, NO_DTYPES) {                                         \
            dtype = NO_DTYPES[which];                                    \
            EXPECT(BAD_NUMBER, call);                                    \
        }                                                                \
        EACH(which, OTHER_DTYPES) {                                      \
            dtype = OTHER_DTYPES[which];                                 \
            EXPECT(TENSOR_TYPE, call);                                   \
        }                                                                \
        dtype = F32;                                                     \
        EACH(which, counts) {                                            \
            count = (size_t)((ptrdiff_t)(elements) + counts[which]);     \
            EXPECT(LENGTH, call);                                        \
        }                                                                \
        count = SIZE_MAX;                                                \
        EXPECT(LENGTH, call);                                            \
        count = SIZE_MAX / 4 + (elements) + 1;                           \
        EXPECT(LENGTH, call);                                            \
        count = (elements);                                              \
        values = NULL;                                                   \
        EXPECT(NULL_POINTER, call);                                      \
        values = (const char *)memory + 1;                               \
        EXPECT(MISALIGNED_POINTER, call);                                \
        values = arena;                                                  \
        EXPECT(OVERLAP, call);                                           \
        values = arena + MODEL_ARENA_BYTES - 4;                          \
        EXPECT(OVERLAP, call);                                           \
        values = (char *)&session + sizeof session - 4;                  \
        EXPECT(OVERLAP, call);                                           \
        values = memory;                                                 \
        index = 100;                                                     \
        EXPECT(NO_SUCH_TENSOR, call);                                    \
        index = UINT32_MAX;                                              \
        EXPECT(NO_SUCH_TENSOR, call);                                    \
        index = 0;                                                       \
        (void)it;                                                        \
        OBJECT(gradlet_session, &session, call);                         \
    } while (0)

/* Checks a call that finds a tensor of type f32: its arguments are `it`, `index`, `dtype`, `values` and `count`. */
#define FINDS(type, call)                                                \
    do {                                                                 \
        gradlet_session *it = &session;                                  \
        uint32_t index = 0, dtype = F32;                                 \
        size_t number, *count = &number;                                 \
        type found;                                                      \
        type *values = &found;                                           \
        EXPECT(OK, call);                                                \
        EACH(which, NO_DTYPES) {                                         \
            dtype = NO_DTYPES[which];                                    \
            EXPECT(BAD_NUMBER, call);                                    \
        }                                                                \
        EACH(which, OTHER_DTYPES) {                                      \
            dtype = OTHER_DTYPES[which];                                 \
            EXPECT(TENSOR_TYPE, call);                                   \
        }                                                                \
        dtype = F32;                                                     \
        index = 100;                                                     \
        EXPECT(NO_SUCH_TENSOR, call);                                    \
        index = 0;                                                       \
        values = NULL;                                                   \
        EXPECT(NULL_POINTER, call);                                      \
        values = ODD(type, &found);                                      \
        EXPECT(MISALIGNED_POINTER, call);                                \
        values = (type *)(void *)arena;                                  \
        EXPECT(OVERLAP, call);                                           \
        values = (type *)(void *)&session;                               \
        EXPECT(OVERLAP, call);                                           \
        values = &found;                                                 \
        count = NULL;                                                    \
        EXPECT(NULL_POINTER, call);                                      \
        count = ODD(size_t, &number);                                    \
        EXPECT(MISALIGNED_POINTER, call);                                \
        count = (size_t *)(void *)(arena + 64);                          \
        EXPECT(OVERLAP, call);                                           \
        count = (size_t *)(void *)&found;                                \
        EXPECT(OVERLAP, call);                                           \
        count = &number;                                                 \
        (void)it;                                                        \
        OBJECT(gradlet_session, &session, call);                         \
    } while (0)

void tensors(void)
{
    static const ptrdiff_t counts[] = {-1, 1, -X};
    float *memory = exactly(64 * 32 * sizeof(float));
    memset(memory, 0, 64 * 32 * sizeof(float));
    types();
    SETS(X, gradlet_session_set_input(it, MODEL_TRAIN, index, dtype, values, count));
    EXPECT(UNKNOWN_SIGNATURE, gradlet_session_set_input(&session, 2, 0, F32, memory, X));
    FINDS(void *, gradlet_session_input(it, MODEL_TRAIN, index, dtype, values, count));
    FINDS(const void *, gradlet_session_output(it, MODEL_TRAIN, index, dtype, values, count));

    /* The variables are of several types; the tests take one of type f32 for the first one. */
    uint32_t kernel = MODEL_VARIABLE_DENSE_KERNEL;
    EXPECT(OK, gradlet_session_reset(&session));
    {
        const ptrdiff_t most = MODEL_VARIABLE_DENSE_KERNEL_ELEMENTS;
        static const ptrdiff_t counts[] = {-1, 1};
        SETS(most, gradlet_session_set_variable(it, kernel + index, dtype, values, count));
    }
    FINDS(const void *, gradlet_session_variable(it, kernel + index, dtype, values, count));

    /* What no loaded signature assigns is in flash, and cannot be set. */
    static gradlet_program infer;
    static gradlet_session other;
    uint8_t *small = exactly(MODEL_INFER_ARENA_BYTES);
    EXPECT(OK, gradlet_program_load(&infer, model_artifact, MODEL_ARTIFACT_BYTES, model_kernels, MODEL_KERNEL_COUNT, 1u << MODEL_INFER));
    EXPECT(ARENA_TOO_SMALL, gradlet_session_init(&other, &infer, small, MODEL_INFER_ARENA_BYTES - 1));
    EXPECT(OK, gradlet_session_init(&other, &infer, small, MODEL_INFER_ARENA_BYTES));
    EXPECT(NO_SUCH_TENSOR, gradlet_session_set_variable(&other, kernel, F32, memory, MODEL_VARIABLE_DENSE_KERNEL_ELEMENTS));
    const void *values;
    size_t count;
    EXPECT(OK, gradlet_session_variable(&other, kernel, F32, &values, &count));
    EXPECT(UNKNOWN_SIGNATURE, gradlet_session_input(&other, MODEL_TRAIN, 0, F32, (void **)(uintptr_t)&values, &count));
}
