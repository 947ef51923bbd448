//! One interface over CPU, CUDA and HIP devices, found at run time.
