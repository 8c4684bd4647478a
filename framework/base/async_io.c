#include "framework/base/async_io_form.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ct_io {
    const ct_io_form *form;
    void *own;
};

/* The better ones first. */
static const ct_io_form *const forms[] = {
#ifdef CT_HAVE_URING
    &ct_io_uring,
#endif
    &ct_io_threads,
};
enum { N_FORM = sizeof(forms) / sizeof(forms[0]) };

void ct_io_move(ct_io_request *r)
{
    while (r->moved < r->bytes) {
        char *data = (char *)r->data + r->moved;
        size_t left = r->bytes - r->moved;
        off_t at = (off_t)(r->at + (int64_t)r->moved);
        ssize_t n = r->write ? pwrite(r->fd, data, left, at) : pread(r->fd, data, left, at);

        if ((n < 0) && (errno == EINTR)) continue;
        if (n <= 0) {
            r->error = (n < 0) ? errno : r->write ? ENOSPC : -1;
            return;
        }
        r->moved += (size_t)n;
    }
}

/* form: NULL: the first that is to be had. */
static ct_status open_form(const char *form, ct_io **io_p)
{
    ct_status status = CT_UNSUPPORTED;
    ct_io *io = calloc(1, sizeof(*io));

    if (io == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read and write files");
    for (int i = 0; (i < N_FORM) && (status == CT_UNSUPPORTED); i++) {
        int error = 0;

        if ((form != NULL) && (strcmp(forms[i]->name, form) != 0)) continue;
        io->form = forms[i];
        status = forms[i]->open(&io->own, &error);
        if ((status == CT_UNSUPPORTED) && (form == NULL))
            CT_INFO("files are read and written by threads: %s is not to be had (%s)",
                    forms[i]->name, strerror(error));
    }
    if (status == CT_OK)
        *io_p = io;
    else
        free(io);
    return status;
}

ct_status ct_io_open(ct_io **io_p)
{
    return open_form(NULL, io_p);
}

ct_status ct_io_open_as(const char *form, ct_io **io_p)
{
    return open_form(form, io_p);
}

void ct_io_close(ct_io *io)
{
    if (io == NULL) return;
    io->form->close(io->own);
    free(io);
}

const char *ct_io_name(const ct_io *io)
{
    return io->form->name;
}

void ct_io_submit(ct_io *io, ct_io_request *r)
{
    r->error = 0;
    r->moved = 0;
    r->done = false;
    io->form->submit(io->own, r);
}

void ct_io_wait(ct_io *io, ct_io_request *r)
{
    io->form->wait(io->own, r);
}

bool ct_io_done(ct_io *io, ct_io_request *r)
{
    return io->form->done(io->own, r);
}
