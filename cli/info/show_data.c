#include "cli/info/show_data.h"

#include <stdio.h>

#include "framework/data/reader.h"
#include "framework/data/stage.h"
#include "framework/data/stripes.h"

static void print_shards(const ct_reader *r)
{
    ct_shards s = { .n = r->count, .stripes = r->stripes, .n_file = r->n_file };

    if (r->n_file < 2) return;
    ct_shards_deal(&s);
    printf("shards      %d files, %lld stripes of %lld samples or one more\n", s.n_file,
           (long long)s.stripes, (long long)(s.n / s.stripes));
    printf("a batch     of up to %lld samples touches at most %d files\n",
           (long long)(s.n / s.stripes), ct_shards_touched(&s, s.n / s.stripes));
    for (int64_t ranks = 64; ranks <= 4096; ranks *= 8)
        printf("readers     %lld ranks with such batches: at most %d meet at a file\n",
               (long long)ranks, ct_shards_readers(&s, s.n / s.stripes, ranks));
}

ct_status ct_show_data(const char *path)
{
    static const char *const name[2] = { "data", "label" };
    bool hdf5 = ct_stage_can("hdf5", path);
    ct_reader_options o = { .who = path, .source = path, .n_field = 2, .field_name = name };
    ct_reader *r = NULL;

    CT_TRY(ct_reader_open(hdf5 ? "hdf5" : "lmdb", &o, &r));
    printf("data set    %s: %s, %lld samples\n", path, r->ops->name, (long long)r->count);
    printf("first       %s\n", ct_shape_str(&r->field[0]).text);
    printf("bytes       %lld of samples; %.0f a sample in the mean, %lld the largest\n",
           (long long)r->bytes, (double)r->bytes / (double)r->count, (long long)r->largest);
    if (!hdf5) printf("index       %s\n", r->io->walked ? "was made now" : "up to date");
    print_shards(r);
    ct_reader_close(r);
    return CT_OK;
}
