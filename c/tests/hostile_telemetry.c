/* Hostile calls: telemetry, with a callback that fails, lies, and calls back. */

#include "hostile.h"

/* A line whose callback answers what it is told. */
static int32_t line_answer;

static int32_t write_line(void *context, const uint8_t *bytes, size_t count)
{
    gradlet_telemetry *queue = context;
    (void)bytes;
    EXPECT(IN_USE, gradlet_telemetry_poll(queue));
    EXPECT(IN_USE, gradlet_telemetry_scalar(queue, "loss", 1, 0.5f));
    return line_answer == 1 ? (int32_t)count : line_answer;
}

void telemetry(void)
{
    static gradlet_telemetry queue;
    uint8_t *buffer = exactly(300);
    bool is_empty;
    uint32_t dropped;
    EXPECT(NOT_INITIALIZED, gradlet_telemetry_poll(&queue));
    EXPECT(NULL_POINTER, gradlet_telemetry_init(NULL, write_line, &queue, buffer, 300));
    EXPECT(MISALIGNED_POINTER, gradlet_telemetry_init(ODD(gradlet_telemetry, &queue), write_line, &queue, buffer, 300));
    EXPECT(NULL_POINTER, gradlet_telemetry_init(&queue, NULL, &queue, buffer, 300));
    EXPECT(NULL_POINTER, gradlet_telemetry_init(&queue, write_line, &queue, NULL, 300));
    EXPECT(OVERLAP, gradlet_telemetry_init(&queue, write_line, &queue, buffer, SIZE_MAX));
    EXPECT(OVERLAP, gradlet_telemetry_init(&queue, write_line, &queue, (uint8_t *)&queue, 8));
    EXPECT(OK, gradlet_telemetry_init(&queue, write_line, &queue, NULL, 0));
    EXPECT(OK, gradlet_telemetry_scalar(&queue, "loss", 1, 0.5f));
    EXPECT(OK, gradlet_telemetry_init(&queue, write_line, &queue, buffer, 300));

    OBJECT(gradlet_telemetry, &queue, gradlet_telemetry_hello(it, "sender", "clock", 1, NULL));
    OBJECT(gradlet_telemetry, &queue, gradlet_telemetry_scalar(it, "loss", 1, 0.5f));
    OBJECT(gradlet_telemetry, &queue, gradlet_telemetry_text(it, "tag", 1, "text"));
    OBJECT(gradlet_telemetry, &queue, gradlet_telemetry_progress(it, 1, 2, 3));
    OBJECT(gradlet_telemetry, &queue, gradlet_telemetry_variable(it, "kernel", 1, &session, 0));
    OBJECT(gradlet_telemetry, &queue, gradlet_telemetry_run(it, &session, MODEL_INFER, 1));
    OBJECT(gradlet_telemetry, &queue, gradlet_telemetry_poll(it));
    OBJECT(gradlet_telemetry, &queue, gradlet_telemetry_state(it, &is_empty, &dropped));
    OBJECT(gradlet_session, &session, gradlet_telemetry_variable(&queue, "kernel", 1, it, 0));
    OBJECT(gradlet_session, &session, gradlet_telemetry_run(&queue, it, MODEL_INFER, 1));
    TEXT(gradlet_telemetry_hello(&queue, text, "clock", 1, NULL));
    TEXT(gradlet_telemetry_hello(&queue, "sender", text, 1, NULL));
    TEXT(gradlet_telemetry_scalar(&queue, text, 1, 0.5f));
    TEXT(gradlet_telemetry_text(&queue, text, 1, "text"));
    TEXT(gradlet_telemetry_text(&queue, "tag", 1, text));
    TEXT(gradlet_telemetry_variable(&queue, text, 1, &session, 0));
    /* Texts and results in the buffer, or in the struct. */
    char *const inside[] = {(char *)buffer, (char *)buffer + 299, (char *)&queue + sizeof queue - 1};
    memset(buffer, 0, 300);
    for (size_t index = 0; index < 3; index++) {
        EXPECT(OVERLAP, gradlet_telemetry_hello(&queue, inside[index], "clock", 1, NULL));
        EXPECT(OVERLAP, gradlet_telemetry_hello(&queue, "sender", inside[index], 1, NULL));
        EXPECT(OVERLAP, gradlet_telemetry_scalar(&queue, inside[index], 1, 0.5f));
        EXPECT(OVERLAP, gradlet_telemetry_text(&queue, inside[index], 1, "text"));
        EXPECT(OVERLAP, gradlet_telemetry_text(&queue, "tag", 1, inside[index]));
        EXPECT(OVERLAP, gradlet_telemetry_variable(&queue, inside[index], 1, &session, 0));
        EXPECT(OVERLAP, gradlet_telemetry_state(&queue, (bool *)inside[index], &dropped));
    }
    EXPECT(MISALIGNED_POINTER, gradlet_telemetry_hello(&queue, "sender", "clock", 1, ODD(gradlet_program, &program)));
    EXPECT(OK, gradlet_telemetry_hello(&queue, "sender", "clock", 1, &program));
    EXPECT(NO_SUCH_TENSOR, gradlet_telemetry_variable(&queue, "kernel", 1, &session, 100));
    EXPECT(UNKNOWN_SIGNATURE, gradlet_telemetry_run(&queue, &session, 2, 1));
    OUT(bool, &queue, (char *)&queue + 9, gradlet_telemetry_state(&queue, out, &dropped));
    OUT(uint32_t, &queue, (char *)&queue + 8, gradlet_telemetry_state(&queue, &is_empty, out));
    EXPECT(OVERLAP, gradlet_telemetry_state(&queue, (bool *)(void *)&dropped, &dropped));
    static const int32_t answers[] = {-1, INT32_MIN, 301, INT32_MAX};
    for (size_t index = 0; index < 4; index++) {
        line_answer = answers[index];
        EXPECT(IO, gradlet_telemetry_poll(&queue));
    }
    line_answer = 0;
    EXPECT(OK, gradlet_telemetry_poll(&queue));
    for (uint32_t step = 0; step < 100; step++) {
        EXPECT(OK, gradlet_telemetry_variable(&queue, "kernel", step, &session, MODEL_VARIABLE_DENSE_KERNEL));
    }
    EXPECT(OK, gradlet_telemetry_run(&queue, &session, MODEL_INFER, 1));
    line_answer = 1;
    EXPECT(OK, gradlet_telemetry_poll(&queue));
    EXPECT(OK, gradlet_telemetry_state(&queue, &is_empty, &dropped));
}
