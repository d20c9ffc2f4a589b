// Written by hand in the form that ttmlir-opt prints: a cache that stays on the device, a cached constant, a view.
#dram = #ttnn.buffer_type<dram>
#l1 = #ttnn.buffer_type<l1>
#system_memory = #ttnn.buffer_type<system_memory>
#host = #ttnn.ttnn_layout<(d0, d1) -> (d0, d1), <1x1>, memref<32x64xbf16, #system_memory>>
#rows = #ttnn.ttnn_layout<(d0, d1) -> (d0, d1), <1x1>, memref<1x2x!ttcore.tile<32x32, bf16>, #dram>, <interleaved>>
#square = #ttnn.ttnn_layout<(d0, d1) -> (d0, d1), <1x1>, memref<2x2x!ttcore.tile<32x32, bf16>, #dram>, <interleaved>>
#near = #ttnn.ttnn_layout<(d0, d1) -> (d0, d1), <1x2>, memref<1x1x!ttcore.tile<32x32, bf16>, #l1>, <width_sharded>>
#cache = #ttnn.ttnn_layout<(d0, d1, d2, d3) -> (d0 * 64 + d1 * 64 + d2, d3), <1x1>, memref<2x2x!ttcore.tile<32x32, bf16>, #dram>, <interleaved>>
#row = #ttnn.ttnn_layout<(d0, d1, d2, d3) -> (d0 * 32 + d1 * 32 + d2, d3), <1x1>, memref<1x2x!ttcore.tile<32x32, bf16>, #dram>, <interleaved>>
#index = #ttnn.ttnn_layout<(d0) -> (0, d0), <1x1>, memref<1x1xsi32, #dram>, <interleaved>>
module attributes {} {
  ttcore.device_module {
    builtin.module {
      func.func private @forward_const_eval_0(%arg0: tensor<64x64xbf16, #square>) -> tensor<64x64xbf16, #square> attributes {tt.function_type = "const_eval"} {
        %0 = "ttnn.transpose"(%arg0) <{dim0 = 0 : si32, dim1 = 1 : si32}> : (tensor<64x64xbf16, #square>) -> tensor<64x64xbf16, #square>
        return %0 : tensor<64x64xbf16, #square>
      }
      func.func @forward(%arg0: tensor<32x64xbf16, #host> {ttcore.argument_type = #ttcore.argument_type<input>, ttir.name = "x"} loc("x"), %arg1: tensor<64x64xbf16, #square> {ttcore.argument_type = #ttcore.argument_type<parameter>}, %arg2: tensor<1x1x64x64xbf16, #cache> {ttcore.argument_type = #ttcore.argument_type<input>, ttcore.kv_cache}, %arg3: tensor<1xsi32, #index>) -> (tensor<1x1x64x64xbf16, #cache> {jax.result_info = "result"}) attributes {tt.function_type = "forward_device"} {
        %0 = ttcore.load_cached(@forward_const_eval_0, [%arg1]) : (tensor<64x64xbf16, #square>) -> tensor<64x64xbf16, #square> loc(#loc)
        %1 = "ttnn.get_device"() <{mesh_offset = #ttnn<mesh_offset 0x0>, mesh_shape = #ttnn<mesh_shape 1x1>}> : () -> !ttnn.device loc(#loc)
        %2 = "ttnn.to_device"(%arg0, %1) <{memory_config = #ttnn.memory_config<#dram, <interleaved>>}> : (tensor<32x64xbf16, #host>, !ttnn.device) -> tensor<32x64xbf16, #rows> loc(#loc1)
        %3 = "ttnn.matmul"(%2, %0)
            <{transpose_a = false,
              transpose_b = false}> : (tensor<32x64xbf16, #rows>, tensor<64x64xbf16, #square>) -> tensor<32x64xbf16, #rows> loc(#loc1)
        "ttnn.deallocate"(%2) <{force = false}> : (tensor<32x64xbf16, #rows>) -> () loc(#loc1)
        %4 = "ttnn.to_memory_config"(%3) <{memory_config = #ttnn.memory_config<#l1, <width_sharded>>}> : (tensor<32x64xbf16, #rows>) -> tensor<32x64xbf16, #near> loc(#loc1)
        %5 = "ttnn.gelu"(%4) : (tensor<32x64xbf16, #near>) -> tensor<32x64xbf16, #near> loc(#loc1)
        "ttnn.deallocate"(%4) <{force = false}> : (tensor<32x64xbf16, #near>) -> () loc(#loc1)
        %6 = "ttnn.reshape"(%3) <{shape = [1 : i32, 1 : i32, 32 : i32, 64 : i32]}> : (tensor<32x64xbf16, #rows>) -> tensor<1x1x32x64xbf16, #row> loc(#loc1)
        "ttnn.deallocate"(%3) <{force = false}> : (tensor<32x64xbf16, #rows>) -> () loc(#loc1)
        "ttnn.update_cache"(%arg2, %6, %arg3) <{batch_offset = 0 : i32}> : (tensor<1x1x64x64xbf16, #cache>, tensor<1x1x32x64xbf16, #row>, tensor<1xsi32, #index>) -> () loc(#loc1)
        %7 = "ttnn.add"(%arg2, %arg2) <{dtype = #ttcore.supportedDataTypes<bf16>}> : (tensor<1x1x64x64xbf16, #cache>, tensor<1x1x64x64xbf16, #cache>) -> tensor<1x1x64x64xbf16, #cache> loc("add<1> \"q\"")
        "ttnn.deallocate"(%6) <{force = false}> : (tensor<1x1x32x64xbf16, #row>) -> () loc(#loc1)
        return %7 : tensor<1x1x64x64xbf16, #cache> loc(#loc)
      } loc(#loc)
    } loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc1 = loc("matmul.1"(#loc))
