/** @file one_net.h  A small net for readers of what belongs to one. */
#ifndef CT_FUZZ_ONE_NET_H
#define CT_FUZZ_ONE_NET_H

#include "framework/net/net.h"
#include "framework/proto/upgrade.h"
#include "tests/fuzz/folder.h"

/** A TRAIN net of 2 samples of 3: the layer `name` is a product with n outputs. It stays as long as
 *  the program. */
static inline ct_net *fuzz_net(const char *name, int n)
{
    static const char form[] =
        "name: 'n' layer { name: 'in' type: 'DummyData' top: 'x' top: 'l' dummy_data_param { "
        "shape { dim: 2 dim: 3 } shape { dim: 2 } } } "
        "layer { name: '%s' type: 'InnerProduct' bottom: 'x' top: 'y' inner_product_param { "
        "num_output: %d weight_filler { type: 'constant' value: 0.5 } } } "
        "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'y' bottom: 'l' top: 'loss' }";
    ct_net_options o = { .phase = CT_TRAIN, .env = { .n_rank = 1 } };
    Ct__NetParameter *param = NULL;
    ct_source_map *map = NULL;
    ct_net *net = NULL;
    char path[128], text[1024];

    snprintf(path, sizeof(path), "%s/net.prototxt", fuzz_folder_path());
    snprintf(text, sizeof(text), form, name, n);
    fuzz_write(path, text, strlen(text));
    if ((ct_source_map_create(&map) != CT_OK) || (ct_net_read(path, map, &param) != CT_OK)) abort();
    o.map = map;
    if (ct_net_create(param, &o, &net) != CT_OK) abort();
    return net;
}

#endif
