#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# kcheck of kernels for cards with no card: their texts compiled for the host (fakes/cuda_host.c), blocks and
# threads from the first to the last and the other way. The operators named here: rows of them that differ.
# TEST-TIMEOUT 240
set -eu
[ "$(uname -m)" = x86_64 ] && command -v g++ >/dev/null || { echo "skipped: needs g++ on x86-64"; exit 77; }
fake=$HONE_BUILD_DIR/fakes/libcuda_host.so
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HONE_CUDA_LIB=$fake HONE_NVRTC_LIB=$fake HOST_CUDA_CACHE=$work HONE_STORE=off
export HONE_CUBLASLT_LIB=/nowhere HONE_CUDNN_LIB=/nowhere
kcheck=$HONE_BUILD_DIR/tests/t_kernels_kcheck_cuda
HONE_KCHECK_OP=${1:-TopK,ArgMin,CumSum,GatherND,ScatterND,Trilu} "$kcheck"
HONE_KCHECK_OP=${1:-CumSum,ScatterND} HOST_CUDA_BACKWARDS=1 "$kcheck"
