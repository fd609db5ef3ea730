/* Calls every function of the C API with every kind of wrong argument, and in the wrong order. Each such call must return the right code and
 * change nothing. The last lines are the number of failed calls of each function, and `N calls, 0 wrong`. */

#include "hostile.h"

char long_text[257];
gradlet_program program;
gradlet_session session;
uint8_t *arena;

static unsigned calls, wrong;

/* The functions that were called, with the number of calls that failed as they had to. */
static struct {
    char name[48];
    unsigned failed;
} functions[100];

static void count(const char *call, int failed)
{
    size_t length = strcspn(call, "(");
    size_t index = 0;
    while (functions[index].name[0] != 0 && (strncmp(functions[index].name, call, length) != 0 || functions[index].name[length] != 0)) {
        index++;
    }
    memcpy(functions[index].name, call, length);
    functions[index].failed += (unsigned)failed;
}

void expect(int line, const char *text, uint32_t code, gradlet_result result)
{
    calls++;
    char explained[200];
    gradlet_text(result, explained, sizeof explained);
    if (code == ANY ? result.code == GRADLET_CODE_OK : result.code != code) {
        wrong++;
        fprintf(stderr, "line %d: code %u (%s) instead of %u: %s\n", line, result.code, explained, code, text);
        if (wrong == 1000) {
            /* A loop may wait for a call that always fails. */
            exit(1);
        }
    }
    count(text, result.code != GRADLET_CODE_OK);
}

void holds(int line, const char *text, int condition)
{
    if (!condition) {
        wrong++;
        fprintf(stderr, "line %d: this must hold: %s\n", line, text);
    }
}

/* All memory that was allocated, so that none of it counts as lost. */
static void *allocated[1000];

void *exactly(size_t bytes)
{
    static size_t number;
    void *memory = malloc(bytes > 0 ? bytes : 1);
    if (memory == NULL || (uintptr_t)memory % GRADLET_ALIGNMENT != 0 || number == sizeof allocated / sizeof *allocated) {
        fprintf(stderr, "the test has no memory\n");
        exit(1);
    }
    allocated[number++] = memory;
    return memory;
}

static void fill(float *values, size_t number, uint32_t example)
{
    uint32_t state = example;
    for (size_t index = 0; index < number; index++) {
        state = state * 1664525u + 1013904223u;
        values[index] = (float)(state >> 16) / 65536.0f;
    }
}

static float step_of(gradlet_session *which, uint32_t step)
{
    float x[MODEL_TRAIN_INPUT_X_ELEMENTS];
    int32_t y = (int32_t)(step % 10);
    fill(x, MODEL_TRAIN_INPUT_X_ELEMENTS, step);
    EXPECT(OK, gradlet_session_set_input(which, MODEL_TRAIN, 0, GRADLET_DTYPE_F32, x, MODEL_TRAIN_INPUT_X_ELEMENTS));
    EXPECT(OK, gradlet_session_set_input(which, MODEL_TRAIN, 1, GRADLET_DTYPE_I32, &y, 1));
    EXPECT(OK, gradlet_session_run(which, MODEL_TRAIN));
    const void *loss;
    size_t number;
    EXPECT(OK, gradlet_session_output(which, MODEL_TRAIN, 0, GRADLET_DTYPE_F32, &loss, &number));
    return number == 1 ? *(const float *)loss : 0;
}

void train(uint32_t step)
{
    step_of(&session, step);
}

/* Trains the session that all calls had, and a new one from the initial values. The losses are the same. */
static void still_whole(void)
{
    static gradlet_session other;
    uint8_t *memory = exactly(MODEL_ARENA_BYTES);
    EXPECT(OK, gradlet_session_init(&other, &program, memory, MODEL_ARENA_BYTES));
    EXPECT(OK, gradlet_session_reset(&session));
    for (uint32_t step = 0; step < 5; step++) {
        float first = step_of(&session, step);
        float second = step_of(&other, step);
        HOLDS(memcmp(&first, &second, sizeof first) == 0);
    }
}

static void texts(void)
{
    gradlet_result result = {GRADLET_CODE_ARENA_TOO_SMALL, {10272, 10271, 0, 0}};
    char text[64];
    size_t length = gradlet_text(result, text, sizeof text);
    calls += 4;
    HOLDS(strcmp(text, "the arena needs 10272 bytes, but has 10271") == 0 && length == strlen(text));
    HOLDS(gradlet_text(result, NULL, 0) == length && gradlet_text(result, NULL, 64) == length);
    char small[4] = "xxx";
    HOLDS(gradlet_text(result, small, 3) == length && strcmp(small, "th") == 0);
    /* A size that no memory has. */
    memset(text, 0, sizeof text);
    HOLDS(gradlet_text(result, text, SIZE_MAX) == length && strlen(text) == length);
    /* Every code and every number has a text. */
    for (uint32_t code = 0; code < 300; code++) {
        for (uint32_t number = 0; number < 20; number++) {
            gradlet_result any = {code, {number, number * 1000, UINT32_MAX, number}};
            char long_enough[300];
            calls++;
            HOLDS(gradlet_text(any, long_enough, sizeof long_enough) == strlen(long_enough));
        }
    }
    count("gradlet_text(", 1);
    HOLDS(gradlet_version() == GRADLET_VERSION);
    count("gradlet_version(", 1);
}

int main(void)
{
    memset(long_text, 'x', sizeof long_text - 1);
    arena = exactly(MODEL_ARENA_BYTES);
    texts();
    programs();
    sessions();
    tensors();
    checkpoints();
    slots();
    telemetry();
    still_whole();
    for (size_t index = 0; functions[index].name[0] != 0; index++) {
        printf("%s=%u\n", functions[index].name, functions[index].failed);
    }
    printf("%u calls, %u wrong\n", calls, wrong);
    return wrong > 0;
}
