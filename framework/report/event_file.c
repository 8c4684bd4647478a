/* Event files for TensorBoard. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/report/report.h"

#define NAME_BEGIN "events.out.tfevents."

struct ct_event_file {
    char *path;
    FILE *stream;
    bool begun; /* START stands */
};

/* ---- records */

/* CRC32C (Castagnoli), bit by bit: records are short and few. */
static uint32_t crc32c(const void *data, size_t n)
{
    const uint8_t *byte = data;
    uint32_t crc = 0xFFFFFFFFu;

    for (size_t i = 0; i < n; i++) {
        crc ^= byte[i];
        for (int k = 0; k < 8; k++) crc = (crc >> 1) ^ (0x82F63B78u & (0u - (crc & 1u)));
    }
    return ~crc;
}

/* As TFRecord keeps it: turned by 15 bits, and a constant. */
static uint32_t masked(uint32_t crc)
{
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

static void add_little(ct_text *t, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        char c = (char)(v >> (8 * i));

        ct_text_add_bytes(t, &c, 1);
    }
}

static ct_status write_record(ct_event_file *f, const ct_text *event)
{
    ct_text record = { 0 };
    bool good;

    add_little(&record, event->length, 8);
    if (!record.failed) add_little(&record, masked(crc32c(record.text, 8)), 4);
    ct_text_add_bytes(&record, event->text, event->length);
    add_little(&record, masked(crc32c(event->text, event->length)), 4);
    if (record.failed) {
        ct_text_destroy(&record);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for an event of %s", f->path);
    }
    errno = 0;
    good = (fwrite(record.text, 1, record.length, f->stream) == record.length) &&
           (fflush(f->stream) == 0);
    ct_text_destroy(&record);
    if (good) return CT_OK;
    return CT_FAIL(CT_ERR_IO, "cannot write events to %s: %s", f->path, strerror(errno));
}

/* ---- protocol buffers: a field is its number and kind, then a varint, eight or four bytes, or a
 * length and bytes */

enum { VARINT = 0, EIGHT = 1, BYTES = 2, FOUR = 5 };
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };

static void add_varint(ct_text *t, uint64_t v)
{
    for (; v >= 128; v >>= 7) add_little(t, (v & 127) | 128, 1);
    add_little(t, v, 1);
}

static void add_bytes(ct_text *t, int field, const char *bytes, size_t n)
{
    add_varint(t, (uint64_t)field << 3 | BYTES);
    add_varint(t, n);
    ct_text_add_bytes(t, bytes, n);
}

void ct_event_add_scalar(ct_text *summary, const char *group, const char *name, double v)
{
    ct_text tag = { 0 }, value = { 0 };
    float narrow = (float)v;
    uint32_t bits;

    memcpy(&bits, &narrow, sizeof(bits));
    ct_text_add(&tag, "%s/%s", group, name);
    if (!tag.failed) add_bytes(&value, VALUE_TAG, tag.text, tag.length);
    add_varint(&value, VALUE_SIMPLE << 3 | FOUR);
    add_little(&value, bits, 4);
    if (tag.failed || value.failed)
        summary->failed = true;
    else
        add_bytes(summary, SUMMARY_VALUE, value.text, value.length);
    ct_text_destroy(&tag);
    ct_text_destroy(&value);
}

/* An event with one field of bytes. */
static ct_status write_event(ct_event_file *f, int64_t step, int field, const char *bytes, size_t n)
{
    struct timespec now = { 0 };
    ct_text event = { 0 };
    double when;
    uint64_t bits;
    ct_status status;

    clock_gettime(CLOCK_REALTIME, &now);
    when = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    memcpy(&bits, &when, sizeof(bits));
    add_varint(&event, EVENT_TIME << 3 | EIGHT);
    add_little(&event, bits, 8);
    add_varint(&event, EVENT_STEP << 3 | VARINT);
    add_varint(&event, (uint64_t)step);
    add_bytes(&event, field, bytes, n);
    status = event.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for an event of %s", f->path)
                          : write_record(f, &event);
    ct_text_destroy(&event);
    return status;
}

ct_status ct_event_file_write(ct_event_file *f, int64_t step, const ct_text *summary)
{
    static const char start[2] = { SESSION_STATUS << 3 | VARINT, SESSION_START };

    if (summary->failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for an event of %s", f->path);
    if (!f->begun) CT_TRY(write_event(f, step, EVENT_SESSION, start, sizeof(start)));
    f->begun = true;
    if (summary->length == 0) return CT_OK;
    return write_event(f, step, EVENT_SUMMARY, summary->text, summary->length);
}

/* ---- files */

ct_status ct_report_spare_events(const char *folder, const char *more)
{
    DIR *d = opendir(folder);
    int reason = ((d != NULL) || (errno == ENOENT)) ? 0 : errno;
    bool any = false;

    for (const char *name; !any && ((name = ct_folder_next(d, &reason)) != NULL);)
        any = (strncmp(name, NAME_BEGIN, strlen(NAME_BEGIN)) == 0);
    if (d != NULL) closedir(d);
    if (reason != 0)
        return CT_FAIL(CT_ERR_IO, "cannot list the events of %s: %s", folder, strerror(reason));
    if (!any) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s holds the events of an earlier run: --overwrite has readers drop them%s",
                   folder, more);
}

/* Readers take the files of a folder in the order of their names: that of time. */
static ct_status open_file(ct_event_file *f, const char *folder)
{
    static const char version[] = "brain.Event:2";
    struct timespec now = { 0 };
    char host[64] = "host";
    ct_text path = { 0 };
    int fd;

    clock_gettime(CLOCK_REALTIME, &now);
    gethostname(host, sizeof(host) - 1);
    ct_text_add(&path, "%s/" NAME_BEGIN "%010lld.%09ld.%s.%d", folder, (long long)now.tv_sec,
                now.tv_nsec, host, (int)getpid());
    if (path.failed) {
        ct_text_destroy(&path);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for an event file");
    }
    f->path = path.text;
    fd = open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    f->stream = (fd >= 0) ? fdopen(fd, "w") : NULL;
    if (f->stream == NULL) {
        if (fd >= 0) close(fd);
        return CT_FAIL(CT_ERR_IO, "cannot write events to %s: %s", f->path, strerror(errno));
    }
    return write_event(f, 0, EVENT_VERSION, version, strlen(version));
}

ct_status ct_event_file_create(const char *folder, ct_event_file **f_p)
{
    ct_event_file *f;
    ct_status status;

    if ((mkdir(folder, 0777) != 0) && (errno != EEXIST))
        return CT_FAIL(CT_ERR_IO, "cannot make the folder %s for events: %s", folder,
                       strerror(errno));
    f = calloc(1, sizeof(*f));
    if (f == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for an event file");
    status = open_file(f, folder);
    if (status != CT_OK) {
        ct_event_file_destroy(f);
        return status;
    }
    *f_p = f;
    return CT_OK;
}

ct_status ct_event_file_close(ct_event_file *f)
{
    ct_status status = CT_OK;
    FILE *stream;

    if (f == NULL) return CT_OK;
    stream = f->stream;
    f->stream = NULL;
    if ((stream != NULL) && (fclose(stream) != 0))
        status = CT_FAIL(CT_ERR_IO, "cannot write events to %s: %s", f->path, strerror(errno));
    ct_event_file_destroy(f);
    return status;
}

void ct_event_file_destroy(ct_event_file *f)
{
    if (f == NULL) return;
    if (f->stream != NULL) fclose(f->stream);
    free(f->path);
    free(f);
}
