/* Trains the MLP 64-32-10, as boards/emulated/src/mlp.rs does in Rust. Reports instruction counts and stack, and writes the values that
 * the host compares bit by bit. The command line is STEPS FILE. */

#include "gradlet.h"
#include "model.h"
#include "semihosting.h"

#define EXAMPLES 8
#define CLASSES 10

static gradlet_program program;
static gradlet_session session;
_Alignas(GRADLET_ALIGNMENT) static uint8_t arena[MODEL_ARENA_BYTES];

/* Console. */

static void put(const char *text)
{
    for (; *text != 0; text++) {
        semihosting(SEMIHOSTING_WRITE_CHARACTER, (uintptr_t)text);
    }
}

static void report(const char *key, uint32_t value)
{
    char digits[11];
    char *first = digits + sizeof digits - 1;
    *first = 0;
    do {
        *--first = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    put(key);
    put("=");
    put(first);
    put("\n");
}

/* Returns 1 if a call has failed, and reports the code. */
static int failed(gradlet_result result)
{
    if (result.code == GRADLET_CODE_OK) {
        return 0;
    }
    report("error", result.code);
    report("error_number", result.numbers[0]);
    return 1;
}

/* The instruction counter: the board's timer counts down at 25 MHz, and QEMU runs an instruction in 64 ns. */

static volatile uint32_t *const TIMER = (volatile uint32_t *)0x40000000;

static void counter_start(void)
{
    TIMER[2] = UINT32_MAX;
    TIMER[1] = UINT32_MAX;
    TIMER[0] = 1;
}

static uint32_t ticks(void)
{
    return ~TIMER[1];
}

static uint32_t instructions_since(uint32_t before)
{
    return (uint32_t)(((uint64_t)(ticks() - before) * 5) >> 3);
}

/* The stack: the memory between the statics and the stack pointer is painted, and what is overwritten was used. */

#define PAINT 0xa5a5a5a5u

extern uint32_t _bss_end;
extern uint32_t _stack_top;

static uint32_t *stack_pointer(void)
{
    uint32_t *pointer;
    __asm__ volatile("mov %0, sp" : "=r"(pointer));
    return pointer;
}

static void paint_stack(void)
{
    for (volatile uint32_t *word = &_bss_end; word < stack_pointer() - 16; word++) {
        *word = PAINT;
    }
}

static uint32_t stack_below(const uint32_t *top)
{
    const volatile uint32_t *word = &_bss_end;
    while (word < &_stack_top && *word == PAINT) {
        word++;
    }
    return (uint32_t)((uintptr_t)top - (uintptr_t)word);
}

/* Examples: the high bits of a linear congruential generator whose seed is the example. */

static void fill(float *values, size_t count, uint32_t example)
{
    uint32_t state = example;
    for (size_t index = 0; index < count; index++) {
        state = state * 1664525u + 1013904223u;
        values[index] = (float)(state >> 16) / 65536.0f;
    }
}

static gradlet_result set_inputs(uint32_t signature, uint32_t example)
{
    void *values;
    size_t count;
    gradlet_result result = gradlet_session_input(&session, signature, 0, GRADLET_DTYPE_F32, &values, &count);
    if (result.code == GRADLET_CODE_OK) {
        fill(values, count, example);
    }
    return result;
}

static gradlet_result set_example(uint32_t step)
{
    uint32_t example = step % EXAMPLES;
    int32_t label = (int32_t)(example % CLASSES);
    gradlet_result result = set_inputs(MODEL_TRAIN, example);
    if (result.code != GRADLET_CODE_OK) {
        return result;
    }
    return gradlet_session_set_input(&session, MODEL_TRAIN, MODEL_TRAIN_INPUT_Y, GRADLET_DTYPE_I32, &label, 1);
}

/* Runs a signature. Stores the number of its instructions and of the bytes of its stack. */
static __attribute__((noinline)) gradlet_result measure(uint32_t signature, uint32_t *instructions, uint32_t *stack)
{
    paint_stack();
    const uint32_t *top = stack_pointer();
    uint32_t before = ticks();
    gradlet_result result = gradlet_session_run(&session, signature);
    *instructions = instructions_since(before);
    *stack = stack_below(top);
    return result;
}

static int write_file(uintptr_t file, const void *bytes, size_t count)
{
    uintptr_t block[3] = {file, (uintptr_t)bytes, count};
    return semihosting(SEMIHOSTING_WRITE, (uintptr_t)block) == 0;
}

static int train(uint32_t steps, uintptr_t file)
{
    uint32_t before = ticks();
    gradlet_result result = gradlet_program_load(&program, model_artifact, sizeof model_artifact, model_kernels, MODEL_KERNEL_COUNT,
                                                 MODEL_SIGNATURES);
    report("instructions_load", instructions_since(before));
    if (failed(result) || failed(gradlet_session_init(&session, &program, arena, sizeof arena))) {
        return 1;
    }

    uint32_t instructions, stack;
    if (failed(set_inputs(MODEL_INFER, 0)) || failed(measure(MODEL_INFER, &instructions, &stack))) {
        return 1;
    }
    report("instructions_infer", instructions);
    report("stack_infer", stack);

    uint32_t most = 0, deepest = 0;
    const void *values;
    size_t count;
    for (uint32_t step = 0; step < steps; step++) {
        if (failed(set_example(step)) || failed(measure(MODEL_TRAIN, &instructions, &stack)) ||
            failed(gradlet_session_output(&session, MODEL_TRAIN, MODEL_TRAIN_OUTPUT_LOSS, GRADLET_DTYPE_F32, &values, &count)) ||
            !write_file(file, values, count * sizeof(float))) {
            return 1;
        }
        most = instructions > most ? instructions : most;
        deepest = stack > deepest ? stack : deepest;
    }
    report("instructions_train_step", most);
    report("stack_train", deepest);

    uint32_t variables;
    if (failed(gradlet_session_variable_count(&session, &variables))) {
        return 1;
    }
    for (uint32_t index = 0; index < variables; index++) {
        gradlet_type type;
        if (failed(gradlet_session_variable_type(&session, index, &type)) ||
            failed(gradlet_session_variable(&session, index, type.dtype, &values, &count)) ||
            !write_file(file, values, count * (type.dtype == GRADLET_DTYPE_I64 ? 8 : 4))) {
            return 1;
        }
    }
    return 0;
}

/* Returns the end of the word that begins at `text`. */
static char *end_of_word(char *text)
{
    while (*text != 0 && *text != ' ') {
        text++;
    }
    return text;
}

int main(void)
{
    counter_start();
    char line[256] = {0};
    uintptr_t block[3] = {(uintptr_t)line, sizeof line - 1, 0};
    if (semihosting(SEMIHOSTING_COMMAND_LINE, (uintptr_t)block) != 0) {
        return 1;
    }
    /* The first word is the name of the program. */
    char *word = end_of_word(line);
    uint32_t steps = 0;
    for (word += *word == ' '; *word >= '0' && *word <= '9'; word++) {
        steps = 10 * steps + (uint32_t)(*word - '0');
    }
    if (*word++ != ' ') {
        put("usage=STEPS FILE\n");
        return 1;
    }
    /* Mode 7 is that of fopen's w+b. */
    uintptr_t name[3] = {(uintptr_t)word, 7, (uintptr_t)(end_of_word(word) - word)};
    *end_of_word(word) = 0;
    uintptr_t file = semihosting(SEMIHOSTING_OPEN, (uintptr_t)name);
    if (file == UINTPTR_MAX) {
        put("error=file\n");
        return 1;
    }
    int outcome = train(steps, file);
    semihosting(SEMIHOSTING_CLOSE, (uintptr_t)&file);
    return outcome;
}
