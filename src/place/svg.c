// SPDX-License-Identifier: Apache-2.0
#include "place/machine.h"
void hn_place_machine_svg(const hn_place_machine *machine, hn_str *out) { (void)machine; (void)out; }
void hn_place_machine_html(const hn_place_machine *machine, hn_str *out) { (void)machine; (void)out; }
