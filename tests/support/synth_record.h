// SPDX-License-Identifier: Apache-2.0
// Recordings made up by formula, for tests of everything that works over replay.
#ifndef HN_SYNTH_RECORD_H
#define HN_SYNTH_RECORD_H
#include "probe/record.h"

typedef struct synth_record {
    int cards;          // H200-like cards
    int host;           // 1: a host device behind the cards
    double seconds;     // length
    double hz;          // rows a second and device
    int lost_card;      // falls off the bus at half time; -1 = none
} synth_record;
// Cards repeat a 20 s cycle: 5 s idle, 10 s tensor work at 600 W, 5 s copying; phases "idle",
// "train", "copy" are marked. Card d lags by d * 0.1 s. Energy is the exact integral of power.
hone_status synth_record_write(hone_error *err, const char *path, const synth_record *what);
double synth_power_w(int card, double t_s);
#endif
