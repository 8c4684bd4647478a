/** @file chat_template.h  How the messages of a chat become tokens. */
#ifndef CT_CHAT_TEMPLATE_H
#define CT_CHAT_TEMPLATE_H

#include "framework/text/tokenizer.h"

/** Those that chat models were trained on; each has its own words around a message. */
typedef enum {
    CT_CHAT_NONE, /* no chat */
    CT_CHAT_CHATML,
    CT_CHAT_LLAMA3,
    CT_CHAT_ZEPHYR
} ct_chat_template;

typedef struct ct_chat_message {
    const char *role, *content;
    size_t n; /* bytes of content */
} ct_chat_message;

/** By its name, "CHATML" for example; false: there is none. */
bool ct_chat_template_named(const char *name, ct_chat_template *t_p);
const char *ct_chat_template_name(ct_chat_template t);
/** The template that a Jinja text is one of, by the words around messages; CT_CHAT_NONE: unknown.
 */
ct_chat_template ct_chat_template_of(const char *jinja);
/** That of the tokenizer: "chat_template" of a tokenizer_config.json beside its file, or of a GGUF
 *  "tokenizer.chat_template". CT_CHAT_NONE: there is none, or it is unknown. */
ct_chat_template ct_chat_template_find(const char *tokenizer);

/** The ids of the messages, and of what stands in front of the reply. What users write is text,
 * also where it looks like a special token. CT_ERR_CONFIG, logged: the tokenizer has not the
 * template's special tokens; CT_ERR_DATA, logged: something has no token. */
ct_status ct_chat_encode(ct_chat_template template, const ct_tokenizer *t,
                         const ct_chat_message *message, int n, ct_ids *ids);
/** The special token that ends a reply, beside ct_tokenizer_end(); -1: none. */
int32_t ct_chat_end(ct_chat_template template, const ct_tokenizer *t);

#endif
