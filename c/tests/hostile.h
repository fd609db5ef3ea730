/* Calls that must fail, and counts of them. */

#ifndef HOSTILE_H
#define HOSTILE_H

#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradlet.h"
#include "empty.h"
#include "model.h"
#include "other.h"

/* Checks that a call ends with a code. */
#define EXPECT(code, call) expect(__LINE__, #call, GRADLET_CODE_##code, (call))
/* Checks that a call ends with some error. */
#define EXPECT_ERROR(call) expect(__LINE__, #call, ANY, (call))

/* Any code but that of success. */
#define ANY UINT32_MAX

/* A pointer that is not aligned to anything. */
#define ODD(type, pointer) ((type *)((char *)(pointer) + 1))

/* Checks a call whose argument `it` is a pointer to a struct: null, misaligned, not initialised, and a copy. */
#define OBJECT(type, good, call)               \
    do {                                       \
        static type zeros, copy;               \
        memcpy(&copy, (good), sizeof copy);    \
        type *it = NULL;                       \
        EXPECT(NULL_POINTER, call);            \
        it = ODD(type, good);                  \
        EXPECT(MISALIGNED_POINTER, call);      \
        it = &zeros;                           \
        EXPECT(NOT_INITIALIZED, call);         \
        it = &copy;                            \
        EXPECT(NOT_INITIALIZED, call);         \
    } while (0)

/* Checks a call whose argument `out` is a pointer to a result: null, misaligned, and in memory of other arguments. */
#define OUT(type, first, second, call)         \
    do {                                       \
        type *out = NULL;                      \
        static type room[2];                   \
        EXPECT(NULL_POINTER, call);            \
        if (alignof(type) > 1) {               \
            out = ODD(type, room);             \
            EXPECT(MISALIGNED_POINTER, call);  \
        }                                      \
        out = (type *)(void *)(first);         \
        EXPECT(OVERLAP, call);                 \
        out = (type *)(void *)(second);        \
        EXPECT(OVERLAP, call);                 \
    } while (0)

/* Checks a call whose argument `text` is a text: null, too long, and not UTF-8. */
#define TEXT(call)                             \
    do {                                       \
        const char *text = NULL;               \
        EXPECT(NULL_POINTER, call);            \
        text = long_text;                      \
        EXPECT(BAD_TEXT, call);                \
        text = "\xff";                         \
        EXPECT(BAD_TEXT, call);                \
    } while (0)

extern char long_text[257];
extern gradlet_program program;
extern gradlet_session session;
extern uint8_t *arena;

/* Checks a condition that must hold between the calls. */
#define HOLDS(condition) holds(__LINE__, #condition, (condition))

void holds(int line, const char *text, int condition);

void expect(int line, const char *text, uint32_t code, gradlet_result result);

/* Returns memory of exactly so many bytes, at a multiple of 16. Nothing frees it. */
void *exactly(size_t bytes);

/* Trains the shared session for a step. */
void train(uint32_t step);

void programs(void);
void sessions(void);
void tensors(void);
void checkpoints(void);
void slots(void);
void telemetry(void);

#endif
