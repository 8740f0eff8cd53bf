"""Train the network of keras_digits.py without selection."""

import keras
from sklearn.datasets import load_digits

keras.utils.set_random_seed(0)
pixels, labels = load_digits(return_X_y=True)
trained, held_out = (pixels[:1400] / 16, labels[:1400]), (pixels[1400:] / 16, labels[1400:])

model = keras.Sequential(
    [
        keras.layers.Input((64,)),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(
    keras.optimizers.SGD(0.1, momentum=0.9),
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy"],
)
model.fit(*trained, epochs=8, verbose=0)

accuracy = model.evaluate(*held_out, verbose=0, return_dict=True)["accuracy"]
print(f"{int(model.optimizer.iterations)} steps, test error {1 - accuracy:.1%}")
