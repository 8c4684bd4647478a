/* The page at /: page.html, told what the model makes. */
#include <string.h>

#include "serve/api/page_html.h" /* made of page.html when it is built */
#include "framework/base/json_writer.h"
#include "serve/api/transaction.h"

#define MARK "/*SERVER*/null"

static const char *makes(const ct_api_options *o)
{
    const ct_served_model *m = o->model;

    if (m->most_context > 0) return (o->chat != CT_CHAT_NONE) ? "chat" : "text";
    if (m->n_class > 0) return "classes";
    return (m->embedding_size > 0) ? "embedding" : "none";
}

void ct_page_give(ct_transaction *x)
{
    const ct_api_options *o = ct_transaction_options(x);
    const char *mark = strstr(page_html, MARK);
    ct_text *to = &x->reply.body;
    ct_json_writer w = ct_json_into(to);

    ct_text_add_bytes(to, page_html, (size_t)(mark - page_html));
    ct_json_begin_object(&w, NULL);
    ct_json_add_text(&w, "makes", makes(o));
    ct_json_add_bool(&w, "ids", o->model->encode == NULL);
    ct_json_add_bool(&w, "key", o->keys != NULL);
    ct_json_end(&w);
    ct_text_add(to, "%s", mark + strlen(MARK));
    ct_transaction_give_json(x);
    if (x->reply.status == 200) x->reply.type = "text/html; charset=utf-8";
}
