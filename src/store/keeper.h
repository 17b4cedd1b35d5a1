// SPDX-License-Identifier: Apache-2.0
// Putting blobs into the store in the background. See keeper.c.
#ifndef HN_STORE_KEEPER_H
#define HN_STORE_KEEPER_H
#include "store/store.h"

// The key is copied; data must stay until done(user) is called, by another thread. False: nothing was
// begun, done is not called.
bool hn_keeper_put(hn_store *store, const hn_store_key *key, const void *data, size_t bytes,
                   void (*done)(void *user), void *user);
// Until all that was put is in the store (or given up). For the end of a short process.
void hn_keeper_wait(void);
#endif
