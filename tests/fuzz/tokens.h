/** @file tokens.h  Mutations of text for libFuzzer: by numbers, words and lines instead of bytes.
 *
 *     FUZZ_TOKENS(1, &ct__net_parameter__descriptor)
 *
 * in a target's file: the first byte of an input stands apart, and names of fields come from that
 * message and those in it (NULL: there are none). Half of the mutations are libFuzzer's own.
 */
#ifndef CT_FUZZ_TOKENS_H
#define CT_FUZZ_TOKENS_H

#include <ctype.h>
#include <protobuf-c/protobuf-c.h>
#include <stdio.h>
#include <string.h>

#include "framework/proto/cortado.pb-c.h"
#include "tests/fuzz/fuzz.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

enum { FUZZ_MOST_TOKENS = 2000 };

typedef struct fuzz_text {
    char *at;
    size_t size, most;
    unsigned seed;
    int n;
    struct {
        size_t from, end;
    } token[FUZZ_MOST_TOKENS];
} fuzz_text;

static inline unsigned fuzz_below(fuzz_text *t, unsigned n)
{
    t->seed = t->seed * 1664525u + 1013904223u;
    return (t->seed >> 8) % ((n > 0) ? n : 1);
}

static inline bool fuzz_is_word(char c)
{
    return isalnum((unsigned char)c) || (strchr("_.+-", c) != NULL && c != '\0');
}

/* Words and numbers whole, other characters one by one, blanks none. */
static inline void fuzz_split(fuzz_text *t)
{
    t->n = 0;
    for (size_t i = 0, end; (i < t->size) && (t->n < FUZZ_MOST_TOKENS); i = end) {
        end = i + 1;
        if (isspace((unsigned char)t->at[i])) continue;
        while (fuzz_is_word(t->at[i]) && (end < t->size) && fuzz_is_word(t->at[end])) end++;
        t->token[t->n].from = i;
        t->token[t->n++].end = end;
    }
}

/* Puts n bytes, which are not of the text, in place of [from, end). */
static inline void fuzz_put(fuzz_text *t, size_t from, size_t end, const char *s, size_t n)
{
    if (t->size - (end - from) + n > t->most) return;
    memmove(t->at + from + n, t->at + end, t->size - end);
    memcpy(t->at + from, s, n);
    t->size += n - (end - from);
}

/* A field of a message, or of one in it. */
static inline const ProtobufCFieldDescriptor *fuzz_field(fuzz_text *t,
                                                         const ProtobufCMessageDescriptor *m)
{
    for (;;) {
        const ProtobufCFieldDescriptor *f = &m->fields[fuzz_below(t, m->n_fields)];

        if ((f->type != PROTOBUF_C_TYPE_MESSAGE) || (fuzz_below(t, 3) == 0)) return f;
        m = f->descriptor;
        if (m->n_fields == 0) return f;
    }
}

static inline const char *fuzz_number(fuzz_text *t)
{
    static const char *const number[] = { "0",
                                          "1",
                                          "2",
                                          "3",
                                          "-1",
                                          "0.5",
                                          "7",
                                          "16",
                                          "64",
                                          "1e300",
                                          "1e-9",
                                          "65536",
                                          "2147483647",
                                          "2147483648",
                                          "-2147483648",
                                          "4294967296",
                                          "9223372036854775807",
                                          "9223372036854775808",
                                          "nan",
                                          "inf" };

    return number[fuzz_below(t, sizeof(number) / sizeof(number[0]))];
}

static inline void fuzz_add_field(fuzz_text *t, const ProtobufCMessageDescriptor *m, size_t at)
{
    const ProtobufCFieldDescriptor *f = fuzz_field(t, m);
    char text[160];

    if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
        snprintf(text, sizeof(text), " %s { } ", f->name);
    } else if (f->type == PROTOBUF_C_TYPE_ENUM) {
        const ProtobufCEnumDescriptor *e = f->descriptor;

        snprintf(text, sizeof(text), " %s: %s ", f->name,
                 e->values[fuzz_below(t, e->n_values)].name);
    } else if (f->type == PROTOBUF_C_TYPE_STRING) {
        snprintf(text, sizeof(text), " %s: \"%s\" ", f->name, fuzz_number(t));
    } else {
        snprintf(text, sizeof(text), " %s: %s ", f->name,
                 (f->type == PROTOBUF_C_TYPE_BOOL) ? "true" : fuzz_number(t));
    }
    fuzz_put(t, at, at, text, strlen(text));
}

/* Copies [from, end) to a place. */
static inline void fuzz_copy(fuzz_text *t, size_t from, size_t end, size_t to)
{
    char some[512];
    size_t n = end - from;

    if (n > sizeof(some)) return;
    memcpy(some, t->at + from, n);
    fuzz_put(t, to, to, some, n);
}

static inline void fuzz_line(fuzz_text *t, bool twice)
{
    size_t i = fuzz_below(t, (unsigned)t->size), from = i, end = i;

    while ((from > 0) && (t->at[from - 1] != '\n')) from--;
    while ((end < t->size) && (t->at[end] != '\n')) end++;
    end += (end < t->size);
    if (twice)
        fuzz_copy(t, from, end, from);
    else
        fuzz_put(t, from, end, "", 0);
}

static inline void fuzz_change(fuzz_text *t, const ProtobufCMessageDescriptor *m)
{
    int a, b;
    const char *number;

    fuzz_split(t);
    if (t->n == 0) return;
    a = (int)fuzz_below(t, (unsigned)t->n);
    b = a + (int)fuzz_below(t, 6);
    if (b >= t->n) b = t->n - 1;
    switch (fuzz_below(t, (m != NULL) ? 9 : 7)) {
    case 0:
    case 1: /* the next number becomes another */
        while ((a < t->n) && !isdigit((unsigned char)t->at[t->token[a].from])) a++;
        if (a == t->n) return;
        number = fuzz_number(t);
        fuzz_put(t, t->token[a].from, t->token[a].end, number, strlen(number));
        return;
    case 2:
        fuzz_put(t, t->token[a].from, t->token[b].end, "", 0);
        return;
    case 3:
        fuzz_copy(t, t->token[a].from, t->token[b].end,
                  t->token[fuzz_below(t, (unsigned)t->n)].from);
        return;
    case 4: { /* a token becomes another of the text */
        char some[128];
        size_t n;

        b = (int)fuzz_below(t, (unsigned)t->n);
        n = t->token[b].end - t->token[b].from;
        if (n > sizeof(some)) return;
        memcpy(some, t->at + t->token[b].from, n);
        fuzz_put(t, t->token[a].from, t->token[a].end, some, n);
        return;
    }
    case 5:
    case 6:
        fuzz_line(t, fuzz_below(t, 2) == 0);
        return;
    default:
        fuzz_add_field(t, m, t->token[a].from);
        return;
    }
}

/** data[head] and before stay. */
static inline size_t fuzz_mutate(uint8_t *data, size_t size, size_t most, unsigned seed,
                                 size_t head, const ProtobufCMessageDescriptor *m)
{
    static fuzz_text t; /* large; one thread */

    if ((seed % 2 == 0) || (size <= head)) return LLVMFuzzerMutate(data, size, most);
    t.at = (char *)data + head;
    t.size = size - head;
    t.most = most - head;
    t.seed = seed;
    for (unsigned k = 1 + fuzz_below(&t, 3); k > 0; k--) fuzz_change(&t, m);
    return t.size + head;
}

#define FUZZ_TOKENS(head, message)                                                                 \
    size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)         \
    {                                                                                              \
        return fuzz_mutate(data, size, most, seed, head, message);                                 \
    }                                                                                              \
    typedef int fuzz_tokens_ends /* takes a semicolon */

#endif
