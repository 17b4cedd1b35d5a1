// SPDX-License-Identifier: Apache-2.0
// A kernel that calls the op table's reference: the fallback of every host backend, and what the
// tests compare with. The tensors it hands over are built once at select; a run only fills pointers.
#include "backends/backend.h"

typedef struct reference_kernel {
    hn_kernel base;
    const hn_node *node;
    int input_count, output_count;
    hn_tensor inputs[HN_MAX_KERNEL_IO], outputs[HN_MAX_KERNEL_IO];
    const hn_tensor *input_list[HN_MAX_KERNEL_IO];
    hn_tensor *output_list[HN_MAX_KERNEL_IO];
    bool constant[HN_MAX_KERNEL_IO];
} reference_kernel;

static hone_status reference_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    reference_kernel *self = (reference_kernel *)kernel;
    for (int i = 0; i < self->input_count; i++)
        if (!self->constant[i]) self->inputs[i].data = args->inputs[i];
    for (int i = 0; i < self->output_count; i++)
        self->outputs[i].data = args->outputs[i];
    return hn_ref_call(err, self->node, self->input_list, self->input_count, self->output_list,
                       self->output_count, 0);
}

static void reference_destroy(hn_kernel *kernel) { hn_free(kernel); }

static const hn_kernel_ops k_reference_ops = {sizeof(hn_kernel_ops), NULL, reference_run,
                                              reference_destroy};

static hn_status describe(hone_error *err, const hn_value *value, hn_tensor *out) {
    if (!hn_type_shape(&value->type, &out->shape))
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "value '%s' has no fixed shape", value->name);
    if (!hn_shape_bytes(&out->shape, value->type.dtype, &out->bytes) || out->bytes > PTRDIFF_MAX) {
        hn_str text = {0};
        hn_shape_print(&text, &out->shape);
        HN_SET(err, HONE_ERR_LIMIT, "value '%s', %s %s, is too large for this machine", value->name,
               hn_dtype_name(value->type.dtype), hn_str_get(&text));
        hn_str_free(&text);
        return HONE_ERR_LIMIT;
    }
    out->dtype = value->type.dtype;
    if (value->constant) out->data = value->constant->data;
    return HONE_OK;
}

hn_status hn_kernel_reference(hone_error *err, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    char label[160];
    hn_node_label(node, label, sizeof label);
    if (!hn_op_get(node->op)->ref || hn_op_has(node->op, HN_T_CONTROL | HN_T_DYNAMIC))
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s: there is no kernel for the operator %s", label,
                node->op_type);
    if (node->post_count)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s: fused steps have no reference kernel", label);
    if (node->input_count > HN_MAX_KERNEL_IO || node->output_count > HN_MAX_KERNEL_IO)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s has more than %d inputs or outputs", label,
                HN_MAX_KERNEL_IO);
    reference_kernel *self = hn_calloc(1, sizeof *self);
    if (!self) HN_NOMEM(err, "selecting a kernel");
    self->base.ops = &k_reference_ops;
    self->base.variant = "ref";
    self->base.is_reference = true;
    self->base.inplace_input[0] = self->base.inplace_input[1] = -1;
    self->node = node;
    self->input_count = node->input_count;
    self->output_count = node->output_count;
    hone_status status = HONE_OK;
    for (int i = 0; i < node->input_count && status == HONE_OK; i++) {
        if (!node->inputs[i]) continue;
        status = describe(err, node->inputs[i], &self->inputs[i]);
        self->input_list[i] = &self->inputs[i];
        self->constant[i] = node->inputs[i]->constant != NULL;
    }
    for (int i = 0; i < node->output_count && status == HONE_OK; i++) {
        if (!node->outputs[i]) continue;
        status = describe(err, node->outputs[i], &self->outputs[i]);
        self->output_list[i] = &self->outputs[i];
    }
    if (status != HONE_OK) {
        hn_free(self);
        return status;
    }
    *out_kernel = &self->base;
    return HONE_OK;
}
