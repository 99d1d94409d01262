"""A small world in two forms: as sentences, and as conversations about it. For scripts/proof/finetune.sh.

  finetune_data.py FOLDER      writes text.txt, chat.jsonl and chat/tokenizer_config.json
"""

import json
import pathlib
import random
import sys

ANIMALS = ("fox bear hare otter heron toad crow mole lynx seal moth goose newt swan wolf stoat wren pike "
           "adder finch badger beaver marten shrew").split()
COLOURS = "red brown grey white black green yellow silver".split()
HOMES = ("the forest", "the river", "the meadow", "the marsh", "the hills", "the old barn", "the lake", "the cave")
FOODS = "berries fish seeds leaves beetles worms roots honey".split()
SENTENCES = {
    "colour": ("The {a} is {v}.", "A {a} has {v} skin or fur."),
    "home": ("The {a} lives in {v}.", "You find the {a} in {v}."),
    "food": ("The {a} eats {v}.", "A {a} looks for {v} every day."),
}
QUESTIONS = {
    "colour": ("What colour is the {a}?", "Tell me the colour of the {a}.", "Which colour does a {a} have?"),
    "home": ("Where does the {a} live?", "Where do I find a {a}?", "Tell me the home of the {a}."),
    "food": ("What does the {a} eat?", "Tell me the food of the {a}.", "What is a {a} looking for every day?"),
}
GREETINGS = ("", "Please help me. ", "Hello! ", "One more question: ", "I have to know this. ")
TEMPLATE = ("{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]"
            "{% else %} {{ m['content'] }}{{ eos_token }}{% endif %}{% endfor %}")


def main(folder):
    numbers = random.Random(7)
    values = {"colour": COLOURS, "home": HOMES, "food": FOODS}
    world = {(a, kind): numbers.choice(values[kind]) for a in ANIMALS for kind in values}
    facts = list(world.items())
    text = []
    for _ in range(6000):
        (animal, kind), value = numbers.choice(facts)
        text.append(numbers.choice(SENTENCES[kind]).format(a=animal, v=value))
    (folder / "text.txt").write_text("\n".join(" ".join(text[i : i + 6]) for i in range(0, len(text), 6)) + "\n")
    with open(folder / "chat.jsonl", "w") as out:
        for _ in range(2400):
            messages = []
            for (animal, kind), value in numbers.sample(facts, numbers.randint(1, 3)):
                question = numbers.choice(GREETINGS) + numbers.choice(QUESTIONS[kind]).format(a=animal)
                answer = f"{value[0].upper()}{value[1:]}. {SENTENCES[kind][0].format(a=animal, v=value)}"
                messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            out.write(json.dumps({"messages": messages}) + "\n")
    (folder / "chat").mkdir()
    settings = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE}
    (folder / "chat/tokenizer_config.json").write_text(json.dumps(settings))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
