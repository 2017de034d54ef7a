"""The graph of everything under results/: for each kind of artifact its paths, its rule and its inputs.

KINDS is its only table, in the order of the data. Rules take their inputs, outputs and parameters from it;
the trail of a score, `scripts.verify`, the page and results/README.md use it too. A new kind is one new
entry.
"""

from swelab.lineage.attempt_artifacts import ATTEMPT_ARTIFACTS
from swelab.lineage.graph import KINDS as KINDS
from swelab.lineage.graph import Kind as Kind
from swelab.lineage.graph import Wildcards as Wildcards
from swelab.lineage.graph import base_manifest as base_manifest
from swelab.lineage.graph import behind as behind
from swelab.lineage.graph import find as find
from swelab.lineage.graph import pattern as pattern
from swelab.lineage.graph import policy_files as policy_files
from swelab.lineage.graph import policy_sources as policy_sources
from swelab.lineage.graph import weights_paths as weights_paths
from swelab.lineage.model_artifacts import MODEL_ARTIFACTS
from swelab.lineage.score_artifacts import SCORE_ARTIFACTS
from swelab.lineage.task_artifacts import TASK_ARTIFACTS

KINDS.update(TASK_ARTIFACTS | ATTEMPT_ARTIFACTS | MODEL_ARTIFACTS | SCORE_ARTIFACTS)
