// SPDX-License-Identifier: Apache-2.0
// Shared by the readers of other tools' texts (text_*.c).
#ifndef HN_PROBE_TEXT_INT_H
#define HN_PROBE_TEXT_INT_H
#include "probe/text.h"

typedef enum hn_text_format {
    HN_TEXT_tree,
    HN_TEXT_mig,
    HN_TEXT_csv,
    HN_TEXT_dmon,
    HN_TEXT_prom
} hn_text_format;
typedef enum hn_text_what { HN_TEXT_metric, HN_TEXT_add, HN_TEXT_bit, HN_TEXT_info } hn_text_what;
typedef struct hn_text_key {
    hn_text_format format;
    const char *key;
    hn_text_what what;
    const char *target;
    double scale;
} hn_text_key;
extern const hn_text_key hn_text_keys[];
extern const size_t hn_text_key_count;

// The one reader of quantities. `unit` is the target's; a unit in the text (behind the number, or in
// unit_hint, a column's) must be convertible. False: there is no value.
bool hn_text_quantity(hn_slice text, hn_slice unit_hint, const char *unit, double *out);
// Texts that mean "no value" rather than something unknown.
bool hn_text_is_absent(hn_slice text);
bool hn_text_is_sentinel(double value);

// Devices and rows; -1 or NULL when out of memory or at the limit.
int hn_text_add_device(hn_text *text, hn_device_kind kind, int parent);
hn_text_row *hn_text_add_row(hn_text *text, int device);
// The device's last row, added if there is none.
hn_text_row *hn_text_last_row(hn_text *text, int device);
// Stores one value under all rows of the key table that match; false if the key is not known.
bool hn_text_put(hn_text *text, hn_text_format format, hn_slice key, hn_slice value,
                 hn_slice unit_hint, int device, hn_sample *sample);
void hn_text_skip(hn_text *text, int line);
hn_text_process *hn_text_add_process(hn_text *text, int device);
// "Fri Jul  3 22:11:09 2026" or "2026/07/03 22:10:46.109" as UTC; 0 = neither.
int64_t hn_text_time(hn_slice text);

// The readers proper. They fail with HONE_ERR_NOMEM or HONE_ERR_FORMAT.
hone_status hn_text_read_q(hone_error *err, const char *name, hn_slice data, hn_text *text);
hone_status hn_text_read_xml(hone_error *err, const char *name, hn_slice data, hn_text *text);
hone_status hn_text_read_csv(hone_error *err, const char *name, hn_slice data, hn_text *text);
hone_status hn_text_read_dmon(hone_error *err, const char *name, hn_slice data, hn_text *text);
hone_status hn_text_read_prom(hone_error *err, const char *name, hn_slice data, hn_text *text);
#endif
