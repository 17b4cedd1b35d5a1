// SPDX-License-Identifier: Apache-2.0
// Which container has which card: what the kubelet says on its pod-resources socket (v1, List).
//
// A thread of its own asks every few seconds, since a kubelet may hang; readers copy what is in memory. Answers older than a
// minute no longer count. A card that several containers share (time slicing, MPS) has no container: its series would be
// counted once for each.
#ifndef HN_FLEET_PODRES_H
#define HN_FLEET_PODRES_H
#include "probe/probe.h"

#define HN_PODRES_FOLDER "/var/lib/kubelet/pod-resources"
#define HN_PODRES_MAX    1024 // devices in use on a node, replicas counted

typedef struct hn_podres_item {
    char device[96]; // as the device plugin names it: a UUID, UUID::replica, nvidia0, nvidia0/gi3
    char namespace_[64], pod[256], container[64];
} hn_podres_item;

typedef struct hn_podres hn_podres;
// NULL: kubelet.sock in the usual folder.
hn_status hn_podres_start(hone_error *err, const char *socket_path, hn_podres **out_podres);
void hn_podres_stop(hn_podres *podres); // takes NULL
// Until the first question has been answered or refused: a few seconds at most. Takes NULL.
void hn_podres_wait(hn_podres *podres);
// Whether the newest question was answered.
bool hn_podres_up(hn_podres *podres);
// The container that has this device (a card or MIG instance) alone. `card`: the card that an instance belongs to, or the
// device itself. NULL podres: none.
bool hn_podres_find(hn_podres *podres, const hn_device_info *device, const hn_device_info *card, hn_podres_item *out_item);

// For tests. Devices beyond max_items are left out.
hn_status hn_podres_parse(hone_error *err, hn_slice message, hn_podres_item *out_items, int max_items, int *out_count);
bool hn_podres_match(const hn_podres_item *items, int count, const hn_device_info *device, const hn_device_info *card,
                     hn_podres_item *out_item);
#endif
