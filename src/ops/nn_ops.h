// SPDX-License-Identifier: Apache-2.0
// The functions of the neural-network families that rows of ops.def name.
#ifndef HN_OPS_NN_OPS_H
#define HN_OPS_NN_OPS_H
#include "ops/ops.h"

#define HN_INFER_FN(name) hone_status name(hone_error *err, hn_infer *ctx)
#define HN_REF_FN(name)   hone_status name(hone_error *err, const hn_call *call)
#define HN_GRAD_FN(name)  hone_status name(hone_error *err, hn_grad *ctx)
#define HN_COST_FN(name)  void name(const hn_node *node, hn_cost *out_cost)

// ---- conv.c ----
HN_INFER_FN(hn_infer_conv);
HN_INFER_FN(hn_infer_conv_integer);
HN_INFER_FN(hn_infer_qlinear_conv);
HN_INFER_FN(hn_infer_deform_conv);
HN_INFER_FN(hn_infer_conv_transpose);
HN_INFER_FN(hn_infer_causal_conv);
HN_REF_FN(hn_ref_conv);
HN_REF_FN(hn_ref_conv_integer);
HN_REF_FN(hn_ref_conv_transpose);
HN_REF_FN(hn_ref_deform_conv);
HN_REF_FN(hn_ref_causal_conv);
HN_INFER_FN(hn_infer_conv_grad_data);
HN_INFER_FN(hn_infer_conv_grad_weight);
HN_REF_FN(hn_ref_conv_grad_data);
HN_REF_FN(hn_ref_conv_grad_weight);
HN_COST_FN(hn_cost_conv);
HN_COST_FN(hn_cost_qlinear_conv);
HN_COST_FN(hn_cost_conv_transpose);
HN_COST_FN(hn_cost_conv_grad_weight);
HN_COST_FN(hn_cost_conv_grad_data);

// ---- pool.c ----
HN_INFER_FN(hn_infer_pool);
HN_INFER_FN(hn_infer_global_pool);
HN_INFER_FN(hn_infer_max_unpool);
HN_INFER_FN(hn_infer_max_roi_pool);
HN_REF_FN(hn_ref_max_pool);
HN_REF_FN(hn_ref_average_pool);
HN_REF_FN(hn_ref_lp_pool);
HN_REF_FN(hn_ref_global_average_pool);
HN_REF_FN(hn_ref_global_max_pool);
HN_REF_FN(hn_ref_global_lp_pool);
HN_REF_FN(hn_ref_max_unpool);
HN_REF_FN(hn_ref_max_roi_pool);
HN_INFER_FN(hn_infer_pool_grad);
HN_REF_FN(hn_ref_max_pool_grad);
HN_REF_FN(hn_ref_average_pool_grad);
HN_COST_FN(hn_cost_average_pool);
HN_COST_FN(hn_cost_read);

// ---- matmul.c, einsum.c, attention.c ----
HN_INFER_FN(hn_infer_matmul);
HN_INFER_FN(hn_infer_matmul_integer);
HN_INFER_FN(hn_infer_qlinear_matmul);
HN_REF_FN(hn_ref_matmul);
HN_REF_FN(hn_ref_matmul_integer);
HN_INFER_FN(hn_infer_gemm);
HN_REF_FN(hn_ref_gemm);
HN_INFER_FN(hn_infer_det);
HN_REF_FN(hn_ref_det);
HN_COST_FN(hn_cost_matmul);
HN_COST_FN(hn_cost_det);
HN_INFER_FN(hn_infer_einsum);
HN_REF_FN(hn_ref_einsum);
HN_COST_FN(hn_cost_einsum);
HN_INFER_FN(hn_infer_attention);
HN_REF_FN(hn_ref_attention);
HN_COST_FN(hn_cost_attention);
HN_INFER_FN(hn_infer_rotary);
HN_REF_FN(hn_ref_rotary);
HN_INFER_FN(hn_infer_embeddings);
HN_REF_FN(hn_ref_embeddings);
HN_INFER_FN(hn_infer_attention_step);
HN_REF_FN(hn_ref_attention_step);
HN_COST_FN(hn_cost_attention_step);
HN_INFER_FN(hn_infer_rotate_half);
HN_REF_FN(hn_ref_rotate_half);
HN_INFER_FN(hn_infer_linear_attention);
HN_REF_FN(hn_ref_linear_attention);
HN_COST_FN(hn_cost_linear_attention);

// ---- norm.c, loss.c ----
HN_INFER_FN(hn_infer_batch_norm);
HN_REF_FN(hn_ref_batch_norm);
HN_INFER_FN(hn_infer_layer_norm);
HN_INFER_FN(hn_infer_rms_norm);
HN_REF_FN(hn_ref_layer_norm);
HN_REF_FN(hn_ref_rms_norm);
HN_INFER_FN(hn_infer_group_norm);
HN_INFER_FN(hn_infer_instance_norm);
HN_REF_FN(hn_ref_group_norm);
HN_REF_FN(hn_ref_instance_norm);
HN_INFER_FN(hn_infer_lrn);
HN_REF_FN(hn_ref_lrn);
HN_INFER_FN(hn_infer_one_axis);
HN_INFER_FN(hn_infer_lp_norm);
HN_REF_FN(hn_ref_lp_norm);
HN_INFER_FN(hn_infer_mvn);
HN_REF_FN(hn_ref_mvn);
HN_REF_FN(hn_ref_softmax);
HN_REF_FN(hn_ref_log_softmax);
HN_REF_FN(hn_ref_hardmax);
HN_COST_FN(hn_cost_norm);
HN_COST_FN(hn_cost_batch_norm);
HN_COST_FN(hn_cost_softmax);
HN_COST_FN(hn_cost_lrn);
HN_INFER_FN(hn_infer_nll_loss);
HN_INFER_FN(hn_infer_sce_loss);
HN_REF_FN(hn_ref_nll_loss);
HN_REF_FN(hn_ref_sce_loss);
HN_INFER_FN(hn_infer_adagrad);
HN_INFER_FN(hn_infer_adam);
HN_INFER_FN(hn_infer_momentum);
HN_REF_FN(hn_ref_adagrad);
HN_REF_FN(hn_ref_adam);
HN_REF_FN(hn_ref_momentum);

// ---- rnn.c ----
HN_INFER_FN(hn_infer_rnn);
HN_INFER_FN(hn_infer_gru);
HN_INFER_FN(hn_infer_lstm);
HN_REF_FN(hn_ref_rnn);
HN_REF_FN(hn_ref_gru);
HN_REF_FN(hn_ref_lstm);
HN_COST_FN(hn_cost_rnn);

// ---- resize.c, sample.c ----
HN_INFER_FN(hn_infer_resize);
HN_REF_FN(hn_ref_resize);
HN_COST_FN(hn_cost_resize);
HN_INFER_FN(hn_infer_grid_sample);
HN_REF_FN(hn_ref_grid_sample);
HN_COST_FN(hn_cost_grid_sample);
HN_INFER_FN(hn_infer_affine_grid);
HN_REF_FN(hn_ref_affine_grid);
HN_INFER_FN(hn_infer_roi_align);
HN_REF_FN(hn_ref_roi_align);
HN_INFER_FN(hn_infer_nms);
HN_REF_FN(hn_ref_nms);

// ---- quant.c ----
HN_INFER_FN(hn_infer_quantize);
HN_INFER_FN(hn_infer_dequantize);
HN_REF_FN(hn_ref_quantize);
HN_REF_FN(hn_ref_dequantize);
HN_INFER_FN(hn_infer_dynamic_quantize);
HN_REF_FN(hn_ref_dynamic_quantize);
HN_REF_FN(hn_ref_qlinear_conv);
HN_REF_FN(hn_ref_qlinear_matmul);
HN_COST_FN(hn_cost_quantize);

// ---- nn_grad.c ----
HN_GRAD_FN(hn_grad_conv);
HN_GRAD_FN(hn_grad_max_pool);
HN_GRAD_FN(hn_grad_average_pool);
HN_GRAD_FN(hn_grad_global_average_pool);
HN_GRAD_FN(hn_grad_gemm);
HN_GRAD_FN(hn_grad_matmul);
HN_GRAD_FN(hn_grad_batch_norm);
HN_GRAD_FN(hn_grad_softmax);
HN_GRAD_FN(hn_grad_log_softmax);
HN_GRAD_FN(hn_grad_sce_loss);
#endif
