// libcublasLt.so.13 beside fake_cuda under the name libcuda.so.1: a library of the right name through which everything
// of fake_cuda is found.
