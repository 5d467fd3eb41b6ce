# Writes data sets of the R package clusterGeneration (Qiu and Joe), as FastLloyd's section 6.1 describes them: clusters
# of sizes 1 : 2 : ... : k, the nearest two apart by .16 to .26, up to 100 outliers among about 10,000 rows.
#
#   Rscript benchmarks/papers/random_clusters.R FOLDER N_SETS K[,K...] D[,D...]
#
# A set is a file synth_K_D_SEED.csv without a header, seeds from 1. It needs Debian's r-cran-clustergeneration.
suppressMessages(library(clusterGeneration))
words <- commandArgs(trailingOnly = TRUE)
numbers <- function(text) as.integer(strsplit(text, ",")[[1]])
rows <- 10000
for (k in numbers(words[3])) for (d in numbers(words[4])) for (seed in seq_len(as.integer(words[2]))) {
  path <- file.path(words[1], sprintf("synth_%d_%d_%d.csv", k, d, seed))
  if (file.exists(path)) next
  set.seed(seed)
  outliers <- sample(0:100, 1)
  sizes <- pmax(round((rows - outliers) * seq_len(k) / sum(seq_len(k))), 2)
  made <- genRandomClust(
    numClust = k, sepVal = runif(1, .16, .26), numNonNoisy = d, numOutlier = outliers, numReplicate = 1,
    clustszind = 3, clustSizes = sizes, outputDatFlag = FALSE, outputLogFlag = FALSE, outputEmpirical = FALSE,
    outputInfo = FALSE
  )
  write.table(made$datList[[1]], path, sep = ",", row.names = FALSE, col.names = FALSE)
}
