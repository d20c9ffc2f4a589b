#dram = #ttnn.buffer_type<dram>
#l1 = #ttnn.buffer_type<l1>
#square = #ttnn.ttnn_layout<(d0, d1) -> (d0, d1), <1x1>, memref<2x2x!ttcore.tile<32x32, bf16>, #dram>, <interleaved>>
#near = #ttnn.ttnn_layout<(d0, d1) -> (d0, d1), <1x2>, memref<2x1x!ttcore.tile<32x32, bf16>, #l1>, <width_sharded>>
func.func @forward(%arg0: tensor<64x64xbf16, #square>, %arg1: tensor<64x64xbf16, #square>)
    -> tensor<64x64xbf16, #square> {
  %0 = "ttnn.matmul"(%arg0, %arg1)
    : (tensor<64x64xbf16, #square>, tensor<64x64xbf16, #square>) -> tensor<64x64xbf16, #square>
  %1 = "ttnn.to_memory_config"(%0) : (tensor<64x64xbf16, #square>) -> tensor<64x64xbf16, #near>
  %2 = "ttnn.gelu"(%1) : (tensor<64x64xbf16, #near>) -> tensor<64x64xbf16, #near>
  "ttnn.deallocate"(%1) <{force = false}> : (tensor<64x64xbf16, #near>) -> ()
  %3 = "ttnn.add"(%arg0, %arg1)
    : (tensor<64x64xbf16, #square>, tensor<64x64xbf16, #square>) -> tensor<64x64xbf16, #square>
  "ttnn.deallocate"(%0) <{force = false}> : (tensor<64x64xbf16, #square>) -> ()
  return %3 : tensor<64x64xbf16, #square>
}
