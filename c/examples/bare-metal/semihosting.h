/* Calls to the debugging host: a console, the command line, and files. QEMU and debug probes have them. */

#ifndef SEMIHOSTING_H
#define SEMIHOSTING_H

#include <stddef.h>
#include <stdint.h>

enum semihosting_operation {
    SEMIHOSTING_OPEN = 0x01,
    SEMIHOSTING_CLOSE = 0x02,
    SEMIHOSTING_WRITE_CHARACTER = 0x03,
    SEMIHOSTING_WRITE = 0x05,
    SEMIHOSTING_COMMAND_LINE = 0x15,
    SEMIHOSTING_EXIT = 0x18,
};

/* Calls an operation, and returns its answer. */
static inline uintptr_t semihosting(enum semihosting_operation operation, uintptr_t parameter)
{
    register uintptr_t r0 __asm__("r0") = operation;
    register uintptr_t r1 __asm__("r1") = parameter;
    __asm__ volatile("bkpt #0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

/* Ends the program, with success or with failure. */
static inline void semihosting_exit(int success)
{
    semihosting(SEMIHOSTING_EXIT, success ? 0x20026 : 0x20023);
    for (;;) {
    }
}

#endif
