// What the descriptors of the fake cuDNN point to.
#pragma once

struct FakeTensor {
  int type;
  int count;
  int dims[5];
};

struct FakeConvolution {
  int padding;
  int stride;
  int groups;
};
