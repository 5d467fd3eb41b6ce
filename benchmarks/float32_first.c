#include <stdint.h>
#include <string.h>
#include <stdlib.h>
typedef float vec __attribute__((vector_size(64), aligned(4)));
#define ROWS 12
#define LANES 32
#define BLOCK 96
/* labels by float32 scores; rows whose two best are within `gap` are scored again in float64 (exact integers). */
__attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma"),visibility("default")))
int64_t dapple_float32_first(const int32_t*rows,int64_t n,int64_t d,const float*tiles,const float*bias,int64_t n_tiles,int64_t size,
  float gap,const double*centers2,const double*sq,float*x,float*scores,int64_t*sums,int64_t*inside,int64_t*again){
  int64_t width=n_tiles*LANES;
  for(int64_t start=0;start<n;start+=BLOCK){
    int64_t m=n-start<BLOCK?n-start:BLOCK; const int32_t*part=rows+start*d;
    for(int64_t i=0;i<m;i++){ double s=0;
#pragma omp simd reduction(+:s)
      for(int64_t f=0;f<d;f++){ double e=part[i*d+f]; x[i*d+f]=part[i*d+f]; s+=e*e; }
      if(!(s<=1099511627776.0)) return 1; }
    int64_t end=(m+ROWS-1)/ROWS*ROWS; memset(x+m*d,0,(end-m)*d*sizeof(float));
    for(int64_t t=0;t<n_tiles;t++) for(int64_t i=0;i<end;i+=ROWS){
      vec s[ROWS][2];
      const float*xi=x+i*d,*tile=tiles+t*d*LANES;
      for(int q=0;q<ROWS;q++) for(int p=0;p<2;p++) s[q][p]=*(const vec*)(bias+t*LANES+p*16);
      for(int64_t f=0;f<d;f++){ vec c0=*(const vec*)(tile+f*LANES),c1=*(const vec*)(tile+f*LANES+16);
#pragma GCC unroll 12
        for(int q=0;q<ROWS;q++){ float e=xi[q*d+f]; s[q][0]+=e*c0; s[q][1]+=e*c1; } }
      for(int q=0;q<ROWS;q++) for(int p=0;p<2;p++) *(vec*)(scores+(i+q)*width+t*LANES+p*16)=s[q][p];
    }
    for(int64_t i=0;i<m;i++){
      const float*sc=scores+i*width; float best=sc[0]; 
#pragma omp simd reduction(max:best)
      for(int64_t j=0;j<width;j++) best=sc[j]>best?sc[j]:best;
      float low=best-gap; int64_t near=0,label=0;
#pragma omp simd reduction(+:near)
      for(int64_t j=0;j<width;j++) near+=sc[j]>=low;
      if(near==1){ while(sc[label]!=best) label++; }
      else { (*again)++; double top=-1e300;
        for(int64_t j=0;j<size;j++) if(sc[j]>=low){ double s=-sq[j];
#pragma omp simd reduction(+:s)
          for(int64_t f=0;f<d;f++) s+=part[i*d+f]*centers2[j*d+f];
          if(s>top){top=s;label=j;} } }
      inside[label]++; int64_t*to=sums+label*d; for(int64_t f=0;f<d;f++) to[f]+=part[i*d+f];
    }
  }
  return 0;
}
