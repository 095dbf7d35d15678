from .explorer import Explored as Explored
from .explorer import explore as explore
from .figures import condition_styles as condition_styles
from .figures import plot_concentration as plot_concentration
from .figures import plot_learning_curves as plot_learning_curves
from .figures import plot_training as plot_training
from .figures import save_figure as save_figure
from .page import write_report as write_report
