"""The choices of settings and config keys, importable without torch."""

DATASETS = (
    "digits",
    "cifar10",
    "cifar100",
    "svhn",
    "stl10",
    "imagenet100",
    "imagenet",
    "custom",
)
LOADERS = ("auto", "device", "workers")
ON_ERROR = ("raise", "skip")  # what an image that cannot be read does
INTERPOLATIONS = ("bicubic", "bilinear")
DISTANCES = ("cosine", "euclidean")
STANDARD_TEMPERATURE = 0.07  # of kNN votes
FEATURE_FORMATS = ("npy", "parquet")  # of simco-embed
FEATURE_TYPES = ("float32", "float16")
EXPORT_FORMATS = ("safetensors", "pth", "onnx", "torchscript", "pt2", "solo-learn")
NAMINGS = ("torchvision", "timm")  # whose names exported weights have
MAPS = ("umap", "tsne", "pca")  # of simco-visualize
ANALYSES = ("penalty", "hardness", "consistency", "geometry", "gradient")
LARGEST = 2**31 - 1  # of a whole number: larger ones overflow where torch or NumPy take them
