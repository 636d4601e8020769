"""Writes small parquet files of questions in the layouts of Search-R1 and verl, with pyarrow 22.

Run as `python3 make_question_files.py FOLDER`.
"""

import sys
from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet as parquet

QUESTIONS = [
    ("nq", "who got the first nobel prize in physics?", ["Wilhelm Conrad R\u00f6ntgen"]),
    ("hotpotqa", "Are Gallu and Lilu both demons?", ["no"]),
    ("popqa", "What is the capital of the Toledo District?", ["Punta Gorda", "Punta Gorda Town"]),
]
folder = Path(sys.argv[1])


def write(name, rows, **options):
    parquet.write_table(arrow.Table.from_pylist(rows), folder / name, **options)


search_r1 = [
    {
        "id": f"test_{number}",
        "question": question,
        "golden_answers": answers,
        "data_source": source,
        "prompt": [{"role": "user", "content": f"Answer the question. {question}"}],
        "ability": "fact-reasoning",
        "reward_model": {"style": "rule", "ground_truth": {"target": answers}},
        "extra_info": {"split": "test", "index": number},
        "score": 0.5,
    }
    for number, (source, question, answers) in enumerate(QUESTIONS)
]
write("search_r1.parquet", search_r1, compression="snappy")
verl = [
    {
        "data_source": source,
        "prompt": [{"role": "user", "content": question}],
        "reward_model": {"style": "rule", "ground_truth": {"target": answers}},
        "env_kwargs": {"ground_truth": {"target": answers}, "question": question, "data_source": source},
        "metadata": None,
    }
    for source, question, answers in QUESTIONS
]
write("verl.parquet", verl, compression="zstd", row_group_size=2)
write("no_answers.parquet", [{"question": question, "data_source": source} for source, question, _ in QUESTIONS])
write("plain.parquet", [{"question": "who?", "data_source": "nq", "golden_answers": ["x"]}] * 3, compression="none")
