// What all kernels share: buffers are reached by address, so that no descriptor and no binding's size is in the way.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : enable

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Ints { int at[]; };
// Addresses of the cache's pages.
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Table { Words at[]; };

layout(local_size_x = 64) in;
